# %% [markdown]
# # 06 · Prove that it is really the target
#
# **In this chapter you will have shown** that a speculative decoder writes by the target's law to the
# last digit, because its own code can be walked through every outcome of every choice, while plausible
# versions of it write by another law, and no single test sees them all.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 20 minutes | 35 minutes | chapters 00 and 03 to 05 | offline, on a laptop CPU, in under 45 s |

# %%
from specdec_core import Sampling, Seeded, TableDrafter, TableModel, autoregressive_decode, exact_law
from specdec_core import largest_difference, load_pair, marginal, speculative_decode, total_variation
from specdec_core.lab import exercises, law_check, museum
from specdec_core.lab.notebook import show_source
from specdec_core.widgets import bet, bet_board, museum_wall, origin_ribbon, sample_size

# %% [markdown]
# ## Two decoders, one text each
#
# Two decoders continue the same prompt with the same pair and seed. One of them is wrong. Here is its run.

# %%
pair = load_pair("storyworld", dtype="float64")
prompt = pair.encode("Once upon a time, there was a")
options = {"gamma": 2, "max_new_tokens": 24}
wrong = museum.decode("M7", pair.target, pair.drafter, prompt, randomness=Seeded(5), **options)
origin_ribbon(wrong.trace, pair.decode)

# %%
exact = speculative_decode(pair.target, pair.drafter, prompt, randomness=Seeded(5), **options)
for run in (wrong, exact):
    print(pair.decode(run.tokens), end="\n\n")

# %% [markdown]
# Nothing crashed; both read well.
#
# **One question to keep in mind:** if no single text shows the mistake, what does?
#
# ## What you will be able to do
#
# 1. Compute the exact law of a decoder by walking its real code.
# 2. Plan a sampled test: false alarms, power, number of samples.
# 3. Say which tests see a mistake, and which are blind to it.
# 4. Tell a mistake in the law from one that costs only acceptance or speed.
#
# Three beliefs that end here:
#
# - *"The output looks fine."* A law cannot be seen in one text.
# - *"I tested the first token a million times."* You will count the mistakes that leave it intact.
# - *"The test passed, so the decoder is right."* How often would it fail a wrong one?
#
# ## Predict
#
# M7 emits the **most likely** token as bonus, after $\gamma$ kept drafts, instead of drawing one. With
# $p = (.7, .3)$, $q = (.4, .6)$ and $\gamma = 1$: what is the probability that the **second** token is 0
# under M7? The target's is .7. And how far, in total variation (chapter 03), is the law of **two** tokens from
# the target's?

# %%
my_second = None
my_two = None

# %% [markdown]
# ## Run: walk the code
#
# A decoder makes choices: which token is drafted, where the round stops, what is emitted then. All go through
# one object, `randomness`. `exact_law` passes one that takes a branch, notes its probability, and takes the
# next branch next time: the same code runs once for **every** outcome.

# %%
toy_target = TableModel(lambda prefix: [0.6, 0.4], 2)
toy_draft = TableDrafter(lambda prefix: [0.8, 0.2], 2)
runs = []

def three_tokens(coins):
    out = speculative_decode(
        toy_target, toy_draft, [0], gamma=1, max_new_tokens=3, randomness=coins
    )
    runs.append(coins.probability)
    return out.tokens

# %%
runs.clear()
law = exact_law(three_tokens)
print("runs of the code:", len(runs), " probability in all:", round(sum(runs), 12))
for tokens, probability in law.items():
    print(tokens, round(probability, 12))

# %% [markdown]
# Fourteen runs, eight texts. The target's law is a product: each token has $p = (.6, .4)$.

# %%
p = (0.6, 0.4)
product = {(a, b, c): p[a] * p[b] * p[c] for a in (0, 1) for b in (0, 1) for c in (0, 1)}
print("largest difference below 1e-15:", largest_difference(law, product) < 1e-15)

# %% [markdown]
# Nothing was sampled. Now the real models, with their caches. `top_k=2` leaves two tokens a step, to keep the
# walk short. Plain decoding is walked the same way.

# %%
narrow = {"sampling": Sampling(top_k=2), "max_new_tokens": 3}
speculative = exact_law(
    lambda coins: speculative_decode(
        pair.target, pair.drafter, prompt, gamma=2, randomness=coins, **narrow
    ).tokens
)
plain = exact_law(
    lambda coins: autoregressive_decode(pair.target, prompt, randomness=coins, **narrow).tokens
)

# %%
print("texts:", len(speculative), "and", len(plain))
print("largest difference below 1e-12:", largest_difference(speculative, plain) < 1e-12)
likeliest = max(speculative, key=speculative.get)
print(f"likeliest: {pair.decode(likeliest)!r} with {speculative[likeliest]:.4f}")

# %% [markdown]
# Now M7, walked the same way, on the toy of your prediction.

# %%
toy = museum.Example(museum.always(0.7, 0.3), museum.always(0.4, 0.6), gamma=1, tokens=3)
right_law, wrong_law = toy.law(), toy.law("M7")
for length in (1, 2):
    print({t: round(x, 12) for t, x in marginal(wrong_law, length).items()})

# %%
second = sum(x for tokens, x in wrong_law.items() if tokens[1] == 0)
exercises.compare_prediction(my_second, round(second, 12), "for token 0")
exercises.compare_prediction(my_two, round(museum.distance(toy, "M7", 2), 12), "total variation")

# %% [markdown]
# A draft is kept with .7, and then the bonus is 0, always; otherwise it is 0 with .7: $.7 + .3 \cdot .7 =
# .91$. The first token is perfect. A test of first tokens passes M7 whatever the number of samples.
#
# ## See: the museum
#
# Most of these mistakes come from public code and reports; the table inside the picture links a page where
# one is known. Each check compares a decoder with the right one, exactly:
#
# | check | what it compares |
# |---|---|
# | first token, two tokens, whole text | their laws |
# | greedy | the text at temperature 0 |
# | accepted length | mean drafts kept, mean tokens of round 1 |
# | cache rows | rows held after each round |
# | end of text | tokens past a stop token or the limit |
# | it runs | does it finish? |
#
# The column *breaks* says what goes wrong: the law, the text's end, acceptance or speed alone, or all (*crash*).
# Choose a mistake, guess which checks will see it, then run them. With *my p and q*, look for a pair on which
# it hides.

# %%
museum_wall()

# %% [markdown]
# In code: which mistakes break the law and spare the first token?

# %%
breakers = [id for id, mistake in museum.MISTAKES.items() if mistake.breaks == "law"]
hidden = [id for id in breakers if "first token" not in museum.seen_by(id)]
print(len(breakers), "break the law")
print(len(hidden), "of them leave the first token intact:", *hidden)

# %%
for id in ("M19", "M20", "M21", "M22", "M23"):
    print(f"{id} {museum.MISTAKES[id].title:40} seen by: {', '.join(museum.seen_by(id))}")

# %% [markdown]
# These five leave the law intact, even M23, where the draft offers garbage. They matter too: speed is why
# you speculate. No law test guards it; the *accepted length* does.
#
# ## Explain
#
# **The distance.** *Total variation*, the mass that has to move, works for laws of texts too:
#
# $$\mathrm{TV}(P, Q) = \tfrac12 \sum_x |P(x) - Q(x)|$$
#
# **Branches only where outcomes differ.** A coin $u$ could be any number. What matters is where the round
# stops: $\gamma + 1$ outcomes at most.
#
# ```text
# draft 0 (.8) ─┬─ kept      (.75) ─┬─ bonus 0 (.6)
#               │                   └─ bonus 1 (.4)
#               └─ rejected  (.25) ─── corrected 1 (1.0)
# draft 1 (.2) ─── kept      (1.0) ─┬─ bonus 0 (.6)
#                                   └─ bonus 1 (.4)
# ```
#
# In shapes: `target_prob` and `draft_prob` are $[\gamma]$; the walk makes $\gamma + 1$ weights of them.

# %%
from specdec_core.randomness import Enumerated

show_source(Enumerated.first_rejection)

# %%
show_source(total_variation)

# %% [markdown]
# ## When you must sample
#
# A walk needs a small vocabulary and a short text. A server with a large model can only be sampled. Then write
# three numbers down **before** the first sample:
#
# - the **level**: how often the test may fail a *right* decoder (a false alarm);
# - the **power**: how often it must fail a decoder that has the mistake you want to catch;
# - from these, the **number of samples**.
#
# Even a right decoder misses the target's exact frequencies. The *null band* is where its distance
# falls in all but 1 % of tests, at level .01. The test sums (count − expected)² / expected over all texts:
# *chi-square*. Its *p-value* is the chance of a sum this large from a right decoder; below the level, the test
# rejects. Chi-square decides; the band illustrates.

# %%
real = law_check.keyhole(pair, "Once upon a time, there was a")
sample_size(real)

# %% [markdown]
# Choose M7: at one token no number of samples has power; at two, 55 give power .99, at level .01. *The bundled
# pair* is seen through a *keyhole*: the models' own rows, cut to the three words likeliest after the prompt.
#
# Plan a test and run it: power .99 against M7 on your prediction's toy, two tokens, stricter level 1e-4.

# %%
two_right, two_wrong = marginal(right_law, 2), marginal(wrong_law, 2)
needed = law_check.samples_needed(two_right, two_wrong, level=1e-4, wanted=0.99)
print("samples:", needed)
print(f"power:   {law_check.power(two_right, two_wrong, needed, 1e-4):.4f}")
print(f"null band of the distance: {law_check.null_band(two_right, needed, 1e-4):.3f}")

# %% [markdown]
# Real runs, with seeded coins:

# %%
def sampled(mistake):
    def run(coins):
        return toy.run(coins, mistake).tokens[:2]

    return law_check.check_law(law_check.sample(run, needed, seed=1), two_right)

# %%
for name, check in (("right", sampled(None)), ("M7", sampled("M7"))):
    verdict = "passes" if check.passes(1e-4) else "fails"
    print(f"{name:5} distance {check.total_variation:.3f}  {verdict}")

# %% [markdown]
# ## Predict once more
#
# M15 compares in half precision. M14 adds $10^{-6}$ to $q$ "for stability": how many samples of the first
# token catch it, at level 1e-4 with power .99? A 1 with how many zeros?

# %%
my_zeros = None

# %%
samples_bet = bet("06-samples", "Samples that catch M14: a 1 with how many zeros?", 1, 20, "zeros")
samples_bet

# %%
for id in ("M1", "M3", "M15", "M14"):
    example = museum.MISTAKES[id].example
    laws = [marginal(example.law(mistake), 1) for mistake in (None, id)]
    count = law_check.samples_needed(*laws, level=1e-4)
    print(f"{id:4} distance {total_variation(*laws):.1e}  samples {count:.1e}")

# %%
samples_bet.settle(my_zeros, len(str(count)) - 1)

# %% [markdown]
# At a million texts a day, M14 takes over forty thousand years. The walk sees it at once.
#
# ## Implement
#
# **Exercise 1** · easy · 5 minutes. Write the distance of two laws. A law is a dictionary from tokens to
# probability; an outcome that one of them lacks has probability 0 there.

# %%
def distance(law, other):
    ...

# %%
exercises.check_distance(distance)

# %% [markdown]
# <details><summary>Hint 1</summary>Which outcomes must the sum run over? <code>law | other</code> has the
# keys of both.</details>
# <details><summary>Hint 2</summary><code>law.get(tokens, 0)</code> is 0 for a missing outcome.</details>
# <details><summary>Hint 3</summary>Absolute differences, added up, times one half.</details>
#
# The solution is `total_variation`, printed above.
#
# **Exercise 2** · medium · 10 minutes. Write a check. It gets the exact law of a decoder and the target's, and
# returns `True` where the decoder is right. It must catch M7 and smaller mistakes, and pass every decoder whose
# law is the target's. You choose what to compare, and how close is close enough.

# %%
def same_law(law, target_law):
    ...

# %%
exercises.check_right_law(same_law)

# %% [markdown]
# <details><summary>Hint 1</summary>M7 is perfect at the first token. How many tokens will you compare?</details>
# <details><summary>Hint 2</summary>Rounding makes differences near 1e-16; the smallest mistake on show is near
# 1e-6.</details>
# <details><summary>Hint 3</summary>Whole texts, <code>total_variation</code>, and a bound between the
# two.</details>
#
# The museum's own check compares this with 1e-9:

# %% jupyter={"outputs_hidden": true}
show_source(museum.distance)

# %% [markdown]
# **Exercise 3** · medium · 15 minutes. Plan a sample size. `power(n)` is the power of n samples; it grows with
# n. Return the smallest n whose power is at least `wanted`. It may be in the millions: do not try one by one.

# %%
def plan_samples(power, wanted):
    ...

# %%
exercises.check_plan(plan_samples)

# %% [markdown]
# <details><summary>Hint 1</summary>Begin with 1 and double until the power is enough.</details>
# <details><summary>Hint 2</summary>The answer lies between the last number that was too small and this
# one.</details>
# <details><summary>Hint 3</summary>Ask for the middle of the two and move one end there, until they are
# neighbours.</details>
#
# The solution, as the package has it:

# %% jupyter={"outputs_hidden": true}
show_source(law_check.samples_needed)

# %% [markdown]
# ## Break it
#
# M19 forgets to roll back the **draft's** cache, so the draft reads a text that never was. Which moves, the
# law or the acceptance? The toy's models read all tokens: one row after an even sum, another after an odd one.

# %%
memory = museum.MISTAKES["M19"].example
settings = {"gamma": 2, "max_new_tokens": 4}

def right(coins):
    return speculative_decode(*memory.models(), [0], randomness=coins, **settings)

def careless(coins):
    return museum.decode("M19", *memory.models(), [0], randomness=coins, **settings)

# %%
def law_of(run):
    return exact_law(lambda coins: run(coins).tokens)

def kept(run):
    law = exact_law(lambda coins: [run(coins).stats.accepted])
    return sum(count * probability for (count,), probability in law.items())

# %%
print("laws equal below 1e-15:", total_variation(law_of(right), law_of(careless)) < 1e-15)

# %%
print(f"drafts accepted a run: {kept(right):.3f} right, {kept(careless):.3f} with M19")

# %% [markdown]
# The law stays the target's. The price is paid in speed.
#
# A pair can hide a mistake too. M1 where $p = q$:

# %%
same = museum.Example(museum.always(0.6, 0.4), museum.always(0.6, 0.4))
print("seen by:", museum.seen_by("M1", same) or "no check")

# %% [markdown]
# Nothing is ever rejected there. A test in which the target drafts for itself (chapter 05) guards the caches,
# never the residual.
#
# ## Try it yourself
#
# Change the mistake and your pair. Can you find $p$ and $q$ where M7 hides?

# %%
my_mistake, my_p, my_q = "M1", (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
assert all(abs(sum(row) - 1) < 1e-9 for row in (my_p, my_q)), "my_p and my_q must add up to 1"
mine = museum.Example(museum.always(*my_p), museum.always(*my_q), gamma=1, tokens=3)
print("seen by:", ", ".join(museum.seen_by(my_mistake, mine)) or "no check")
print("distance at one token: ", round(museum.distance(mine, my_mistake, 1), 6))
print("distance at two tokens:", round(museum.distance(mine, my_mistake, 2), 6))

# %% [markdown]
# <details><summary>Answer</summary>Where no draft is ever kept (p and q share no word), or where p has one
# word: (1, 0).</details>
#
# ## What was shown, and what was not
#
# - Shown: on a toy pair and on the bundled pair (top-k 2, three tokens, γ = 2, one prompt, float64) the law of
#   the real code is the target's, to rounding. With the planned number of runs, M7 failed and the right decoder
#   passed.
# - Not shown: long texts, other prompts, half precision. A walk covers the code that ran; a sampled test, what
#   it had the power to see.
#
# The bets of all chapters:

# %%
bet_board()

# %% [markdown]
# ## Five questions to recall
#
# <details><summary>1. Why can the code be walked at all?</summary>Every choice goes through one object, and each
# has finitely many outcomes.</details>
# <details><summary>2. Why are first-token tests blind to a wrong bonus token?</summary>The bonus is never the
# first token while γ is at least 1.</details>
# <details><summary>3. What are level and power?</summary>How often a test fails a right decoder, and how often it
# fails a given wrong one.</details>
# <details><summary>4. Why does the distance of a right decoder's sample exceed 0?</summary>Frequencies of finitely
# many texts scatter; the null band says how far.</details>
# <details><summary>5. Name a mistake that no law test sees.</summary>M19: the draft's cache is not rolled
# back.</details>
#
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | walk, enumeration | running the code once for every outcome of its choices |
# | false alarm, level | a right decoder that fails; how often that may happen |
# | power | how often a given mistake is caught |
# | chi-square, p-value | how far counts lie from a law; a right decoder's chance of that |
# | null band | where the distance of a right decoder's sample falls |
# | sampler match | keep a draft where a sample of p equals it: exact, with fewer accepted |
#
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192), appendix A proves the law
# - [Chen et al. 2023](https://arxiv.org/abs/2302.01318), theorem 1
#
# **Next:** chapter 07 asks which $p$ and which $q$: temperature, top-k, top-p on either side.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 5 two texts, 10 walk, 15 the wall (each pair guesses for one mistake), 10 samples, 10 exercise 2,
#   5 break it.
# - **Where a room gets stuck:** "passed" read as "right". Ask for the power against M7 at one token.
# - **Draw:** the tree of one round; add up the leaves that begin with 0.
# - **Five-minute cut:** the two texts, the wall with *Try all*, the column *first token*.
# </details>
