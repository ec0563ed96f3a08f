# %% [markdown]
# # 03 · Toss one coin, keep the target's law
#
# **In this chapter you will have shown** that one coin and one second draw give exactly the target's
# probabilities, because what the draft offers too often is moved to what it offers too seldom, while a
# second draw from anything else writes by another law.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 20 minutes | 25 minutes | chapters 00 and 02 | offline, on a laptop CPU, in about half a minute |

# %%
from specdec_core import Sampling, Seeded, TableDrafter, TableModel, load_pair
from specdec_core import autoregressive_decode, exact_law, marginal, speculative_decode
from specdec_core.lab import exercises, museum
from specdec_core.lab.notebook import show_source
from specdec_core.widgets import bet, coin_tape, mass_mover, proof_tree

# %% [markdown]
# ## The target rejects its favourite
#
# A run of the bundled pair. To see all of p and q at once, both models choose among their three
# likeliest words (`top_k=3`): p, q and the target's law are then those of the shortened rows. Round 7
# drafts four words. The picture gives each its **coin**: a number u between 0 and 1. A word stays where
# its coin lands below the mark.

# %%
pair = load_pair("storyworld", dtype="float64")
prompt, three = pair.encode("Once upon a time"), Sampling(top_k=3)
run = speculative_decode(
    pair.target, pair.drafter, prompt, sampling=three, max_new_tokens=40, randomness=Seeded(1)
)
coin_tape(run.trace, pair.decode, round=7)

# %% [markdown]
# *One* is rejected, and the word written in its place, the **corrected** one, is *Her*. Yet no word has a
# higher p there than *One*: it is the target's favourite.
#
# **One question to keep in mind:** how can rejecting the target's favourite word *protect* the target's
# law? And which words may be the corrected one?

# %% [markdown]
# ## What you will be able to do
#
# 1. Compute by hand what is kept, what is rejected, and what comes out.
# 2. Prove in four lines that it is p.
# 3. Read one number, α, in three ways.
# 4. Recognise a wrong second draw by the law it leaves.
#
# Three beliefs that end here:
#
# - *"A rejected word was a wrong word."* It was offered too often.
# - *"After a rejection, ask the target again."* Then the same words get a second chance.
# - *"The same seed gives the same words, or it is broken."* The law is kept, not the words.

# %% [markdown]
# ## Predict
#
# Two words, 0 and 1. The target wants $p = (.6, .4)$. The draft offers $q = (.8, .2)$. The draft
# has offered word 0. With which probability should it be kept?
#
# Then take $p = (.2, .8)$, $q = (.6, .4)$, and suppose the corrected word is a draw from p. Over all
# runs, how often is the word then word 0? The target wants .2.

# %%
my_kept = None
my_first_word = None

# %%
first_word_bet = bet(
    "03-first-word", "p = (.2, .8), q = (.6, .4), rejections draw from p: how often word 0?",
    0, 1, "of the runs", step=0.01,
)
first_word_bet

# %% [markdown]
# ## Run: by hand
#
# Word 0 is offered with .8, and .6 is wanted. So three of four offers may stay: $p/q = .75$. Word 1 is
# offered too seldom: every offer stays.

# %%
p, q = [0.6, 0.4], [0.8, 0.2]
keep = [min(1, a / b) for a, b in zip(p, q)]
print([round(x, 6) for x in keep])

# %%
exercises.compare_prediction(my_kept, round(keep[0], 6), "for an offer of word 0")

# %% [markdown]
# The part of all runs in which each word is offered *and* kept, and the part in which an offer is
# rejected:

# %%
kept = [b * chance for b, chance in zip(q, keep)]
rejected = 1 - sum(kept)
print("kept:    ", [round(x, 6) for x in kept])
print("rejected:", round(rejected, 6))

# %% [markdown]
# Word 0 has its .6 already. Word 1 has .2 and lacks .2, and .2 is what was rejected. So a rejection must
# give word 1, always. What each word still lacks is $\max(p - q, 0)$; divided by its sum it is a
# distribution, the **residual**.

# %%
lacking = [max(a - b, 0) for a, b in zip(p, q)]
rest = [x / sum(lacking) for x in lacking]
print("residual: ", [round(x, 6) for x in rest])
out = [stay + rejected * share for stay, share in zip(kept, rest)]
print("comes out:", [round(x, 6) for x in out])

# %% [markdown]
# That is p. Does the package do the same? `exact_law` runs the real decoder once for every outcome of
# its choices and adds up: this is no sample. The last token of a run is never drafted, so ask for two
# and look at the first:

# %%
def first_token_law(decode, p, q):
    target = TableModel(lambda prefix: p, len(p))
    draft = TableDrafter(lambda prefix: q, len(q))
    law = exact_law(lambda coins: decode(
        target, draft, [0], gamma=1, max_new_tokens=2, randomness=coins).tokens)
    return [round(marginal(law, 1).get((i,), 0.0), 4) for i in range(len(p))]

# %%
print(first_token_law(speculative_decode, [0.6, 0.4], [0.8, 0.2]))
print(first_token_law(speculative_decode, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]))

# %% [markdown]
# ## See: the mass mover
#
# Each word has two bars. On the left is what the draft offers: the blue part stays, the striped part
# lies above p, the **surplus**. It rises into the pipe: those are the rejections. On the right is what
# comes out: what stayed, plus what the pipe gives back. The black line is p; where q is below it, the
# dashed gap is the **deficit**.
#
# 1. Drag a grip **q** or **p** (the other words of that row keep their proportions), or type in the
#    fields *target p* and *draft q*. Can you make the right bars miss the line?
# 2. Make q equal to p. What is in the pipe?
# 3. Draw from *p itself* instead (M1, its number in the museum). Which bar overshoots, and why that one?
#    M3 and M4 come in *Break it*.

# %%
mass_mover([0.6, 0.4], [0.8, 0.2])

# %% [markdown]
# On the right the same number stands three times. The share of drafts that are kept is **α** (alpha). It
# is the overlap of p and q, $\sum_x \min(p, q)$. It is also one minus their **total variation**,
# $TV = \tfrac12 \sum_x |p - q|$: the mass that has to move.
#
# No exact rule keeps more drafts. If x is drafted with q(x) and must come out with p(x), at most
# min(p(x), q(x)) of the runs can do both.

# %%
overlap = sum(min(a, b) for a, b in zip(p, q))
distance = sum(abs(a - b) for a, b in zip(p, q)) / 2
chance = sum(b * min(1, a / b) for a, b in zip(p, q))
print(f"overlap {overlap:.3f}, 1 - TV {1 - distance:.3f}, chance of keeping {chance:.3f}")

# %% [markdown]
# ## Explain
#
# The proof, for any word x. It comes out in two ways: kept, or drawn after a rejection. Line 1 is for
# $q(x) > 0$, and is 0 elsewhere.
#
# $$\begin{aligned}
# \text{drafted and kept} &= q(x) \cdot \min\left(1, \tfrac{p(x)}{q(x)}\right) = \min(p(x), q(x)) \\
# \text{rejected, in all} &= 1 - \sum_y \min(p(y), q(y)) = \sum_y \max(p(y) - q(y), 0) \\
# \text{rejected, then } x &= \sum_y \max(p(y) - q(y), 0) \cdot \frac{\max(p(x) - q(x), 0)}{\sum_y \max(p(y) - q(y), 0)} = \max(p(x) - q(x), 0) \\
# \text{in all} &= \min(p(x), q(x)) + \max(p(x) - q(x), 0) = p(x)
# \end{aligned}$$
#
# In line 3, where something is rejected ($p \ne q$), the sum cancels: the pipe holds exactly what is
# lacking. In line 2, p and q both sum to one, so the surplus equals the deficit. The same as a tree, in
# fractions: a round of one draft, every branch, the bonus word of a kept draft included. Follow the
# leaves of one first word, and add. Under *the rule* are M1 and M5, of *Break it*.

# %%
proof_tree([0.6, 0.4], [0.8, 0.2], gamma=1, rules=("M1", "M5"))

# %% [markdown]
# In shapes: p and q are rows of V probabilities, the drafted word is one id, and the coin is one number.
#
# In code, three functions. The first is the coin:

# %%
from specdec_core.randomness import judge
from specdec_core.verify import emit, residual_weights

show_source(judge)

# %% [markdown]
# `u * q < p` says $u < p/q$ without a division. Where $p \ge q$ it holds for every u below 1, so the
# min needs no code. `cumprod` turns all after the first 0 into 0: the sum counts what is kept before it.

# %%
show_source(residual_weights)
print()
show_source(emit)

# %% [markdown]
# `clamp(min=0)` is $\max(\cdot, 0)$. `categorical` draws in proportion to the weights: that is the division
# by their sum. Where p equals q up to rounding nothing is left over, and p itself is right.

# %% [markdown]
# ## The same picture at a real position
#
# Back to round 7. We ask both models for their rows at the place where *One* was drafted:

# %%
seventh = run.trace.rounds[6]
before = [token for step in run.trace.rounds[:6] for token in step.emitted]
text = prompt + before + list(seventh.drafted[: seventh.accepted])
pair.target.rollback(0), pair.drafter.rollback(0)  # both read the text afresh
p_row = three.probs(pair.target.forward(text, keep=1))[0]
q_row = pair.drafter.propose(text, 1, three, Seeded(0)).probs[0]
print(pair.decode(text[-6:]), "...")

# %%
ids = ((p_row > 0) | (q_row > 0)).nonzero().flatten().tolist()
for token in ids:
    print(f"{pair.decode([token]):>6}  p = {p_row[token]:.3f}  q = {q_row[token]:.3f}")

# %%
mass_mover(p_row, q_row, pair.decode)

# %% [markdown]
# And the decoder itself, run for every outcome on these rows, in the same order:

# %%
print(first_token_law(speculative_decode, p_row[ids].tolist(), q_row[ids].tolist()))

# %% [markdown]
# *One* has p = .372 and q = .394. Kept with p/q = .94, it comes out .372 of the time. Its coin was .987.
# Only *Her* lacks anything, so every rejection here gives *Her*. Without that the story would never say
# *Her* at this place: the draft does not offer it.
#
# So a verdict is about **how often**, not about the word. In three whole stories, all words allowed,
# compare the kept with the rejected:

# %%
stories = [
    speculative_decode(pair.target, pair.drafter, prompt, max_new_tokens=123,
                       stop_tokens=pair.stop_tokens, randomness=Seeded(seed))
    for seed in (1, 2, 3)
]
rounds = [r for story in stories for r in story.trace.rounds]
judged = [pv for r in rounds for pv in zip(r.target_prob, r.verdicts)]
kept_p = [p for p, verdict in judged if verdict == "accepted"]
lost_p = [p for p, verdict in judged if verdict == "rejected"]
print(len(kept_p), "kept,    ", sum(p < 0.1 for p in kept_p), "of them with p below .1")
print(len(lost_p), "rejected,", sum(p > 0.1 for p in lost_p), "of them with p above .1")

# %% [markdown]
# Most rejected words had a small p. Still, some of small p are kept, and some of large p rejected. The
# rule looks at p beside q.
#
# ## Same seed, other words
#
# Plain and speculative decoding use their random numbers for different things. One seed, two texts:

# %%
plain = autoregressive_decode(pair.target, prompt, max_new_tokens=12, randomness=Seeded(5))
fast = speculative_decode(pair.target, pair.drafter, prompt, max_new_tokens=12, randomness=Seeded(5))
print("plain:      ", pair.decode(plain.tokens))
print("speculative:", pair.decode(fast.tokens))

# %% [markdown]
# Neither is wrong: each text has the same probability under both. Comparing words for one seed proves
# nothing; comparing **laws** does.
#
# ## Implement
#
# **Exercise 1** · easy · 5 minutes. Write the residual: two lists in, one list out. Where p = q nothing
# is left over: return p.

# %%
def residual(p, q):
    ...

# %%
exercises.check_residual(residual)

# %% [markdown]
# <details><summary>Hint 1</summary>First what each word lacks: <code>max(a - b, 0)</code>.</details>
# <details><summary>Hint 2</summary>Divide by the sum of that list, so that it adds up to one.</details>
# <details><summary>Hint 3</summary>Look at the sum before you divide: it is zero where p = q.</details>
#
# The solution is `residual_weights` and `emit` above; in lists:
#
# <details><summary>Solution</summary><pre>
# rest = [max(a - b, 0) for a, b in zip(p, q)]
# total = sum(rest)
# return [x / total for x in rest] if total > 0 else p</pre></details>

# %% [markdown]
# **Exercise 2** · medium · 10 minutes. Write the whole rule. `draw(row)` draws an index from a row of
# probabilities; `u` is the coin. Return one index. The check does not sample: it runs your function for
# every outcome of `draw` and every side of the coin, and adds up.

# %%
def one_token(p, q, draw, u):
    ...

# %%
exercises.check_one_token(one_token)

# %% [markdown]
# <details><summary>Hint 1</summary>The draft is <code>x = draw(q)</code>.</details>
# <details><summary>Hint 2</summary>Keep it where <code>u * q[x] &lt; p[x]</code>: return it.</details>
# <details><summary>Hint 3</summary>Else return one draw from your residual.</details>
#
# <details><summary>Solution</summary><pre>
# x = draw(q)
# return x if u * q[x] &lt; p[x] else draw(residual(p, q))</pre></details>
#
# The package has the same rule for many drafts at once; `gather` picks the p and q of each drafted word:

# %%
from specdec_core.verify import token_rule

show_source(token_rule)

# %% [markdown]
# **Exercise 3** · easy · 3 minutes. Return α from p and q.

# %%
def expected_acceptance(p, q):
    ...

# %%
exercises.check_expected_acceptance(expected_acceptance)

# %% [markdown]
# <details><summary>Hint 1</summary>x is drafted with q(x) and then kept with min(1, p/q).</details>
# <details><summary>Hint 2</summary>Multiply the two: what is left of q?</details>
# <details><summary>Hint 3</summary>It is the first of the three ways above.</details>
#
# The solution is the line `overlap = ...` of *See*.

# %% [markdown]
# ## Break it
#
# Four wrong rules; `museum.MISTAKES["M1"].source` says where one was met. First the one you predicted: after
# a rejection, draw from p (M1).

# %%
def mistaken(name):
    return lambda *parts, **options: museum.decode(name, *parts, **options)

resampled = first_token_law(mistaken("M1"), [0.2, 0.8], [0.6, 0.4])
print(resampled)

# %%
first_word_bet.settle(my_first_word, resampled[0])

# %% [markdown]
# Word 0 had all it needed, and .2 of the .4 rejections come back to it: $.2 + .4 \cdot .2 = .28$. The
# text drifts back towards the draft. Two more ways to spoil the residual: a *softmax* over it (M3),
# that is, $e^x$ divided by the sum of all $e^x$, so that words which lack nothing get a share; and no
# division (M4), so that a draw can pass the end of the weights, and then gives the last word. M4 needs
# three words to show: with our two, the last word is the one that lacks. The fourth is left over from
# temperature 0: keep a draft only where it is the target's likeliest word, and otherwise write that
# word (M5).

# %%
print("M3", first_token_law(mistaken("M3"), [0.6, 0.4], [0.8, 0.2]))
print("M4", first_token_law(mistaken("M4"), [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]))
print("M5", first_token_law(mistaken("M5"), [0.6, 0.4], [0.8, 0.2]))

# %% [markdown]
# Which check sees M1? Many people test at temperature 0, where the words must agree. Predict: with the
# mistake in, how many of 48 words differ?

# %%
my_differing = None

# %%
greedy = Sampling(temperature=0)
right = autoregressive_decode(pair.target, prompt, sampling=greedy, max_new_tokens=48)
wrong = museum.decode("M1", pair.target, pair.drafter, prompt, sampling=greedy, max_new_tokens=48)
differing = sum(a != b for a, b in zip(right.tokens, wrong.tokens, strict=True))
exercises.compare_prediction(my_differing, differing, "of 48 words")
print("M1 is seen by the law of:", ", ".join(museum.seen_by("M1")))

# %% [markdown]
# The greedy test is blind. At temperature 0, p has one word, so a draw from p and a draw from the
# residual are the same. Only a check of the law sees it.

# %% [markdown]
# ## Try it yourself
#
# Type your own p and q, two to six numbers each, and choose a second draw; it starts with M4. Then a
# puzzle: which p and q make M1 worst? Get a total variation above .24 before you open the answer.

# %%
mass_mover([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], draw="M4")

# %% [markdown]
# <details><summary>Answer</summary>M1 adds (1 − α) p where it should add the deficit. With p = (.5, .5)
# and q = (1, 0), half of the drafts are rejected and half of those come back: (.75, .25), a total
# variation of .25. No p and q do worse.</details>

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: for one position, the law is p, by proof for every p and q, and by running the package for
#   every outcome on two toys and on the rows of one real position.
# - Shown: four mistaken rules write by another law, and a test at temperature 0 misses M1.
# - Not shown: a whole round of several drafts (chapter 04), and caches (chapter 05).

# %% [markdown]
# ## Five questions to recall
#
# <details><summary>1. With which probability is a drafted word x kept?</summary>min(1, p(x)/q(x)).</details>
# <details><summary>2. What is drawn after a rejection?</summary>A word from max(p − q, 0), divided by its
# sum.</details>
# <details><summary>3. Why not from p?</summary>Words that were offered too often already have their
# share; a draw from p gives them more.</details>
# <details><summary>4. α in three ways?</summary>Σ min(p, q); 1 − TV(p, q); the chance that a draft is
# kept.</details>
# <details><summary>5. Same seed, other words: a bug?</summary>No. The coins are used for other things;
# the law is the same.</details>

# %% [markdown]
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | coin, u | a uniform number between 0 and 1; x is kept where u·q(x) < p(x) |
# | corrected word | the word drawn after a rejection |
# | surplus, deficit | where q is above p, where p is above q; their sums are equal |
# | residual | max(p − q, 0), divided by its sum |
# | total variation, TV | half the sum of abs(p − q): the mass that has to move |
# | α (alpha) | the chance that a draft is kept: Σ min(p, q) = 1 − TV |
#
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192), section 2.3 and appendix A.1
# - [Chen et al. 2023](https://arxiv.org/abs/2302.01318), theorem 1
# - [Sun et al. 2023](https://arxiv.org/abs/2310.15141), the same rule seen as optimal transport
#
# **Next:** chapter 04 puts several coins in a row: a whole round.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 5 cold open, 5 predict, 10 by hand on the board, 10 mass mover, 10 proof, 15 exercises,
#   5 break it.
# - **Where a room gets stuck:** line 3 of the proof. Point at the pipe.
# - **Draw:** two bars, one line p; shade the surplus, move it with your hand.
# - **Five-minute cut:** the mass mover, then M1, then .28.
# </details>
