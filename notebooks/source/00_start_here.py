# %% [markdown]
# # 00 · Run your first speculative decode
#
# **In this chapter you will have shown** that a small model can do most of the writing while a large
# model stays in charge, because one pass of the large model judges several guesses at once, while a
# careless version of the same idea changes what gets written.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 15 minutes | 15 minutes | a little Python | offline, on a laptop CPU, in about half a minute |

# %%
from specdec_core import Sampling, Seeded, TableDrafter, TableModel, load_pair
from specdec_core import autoregressive_decode, exact_law, marginal
from specdec_core import speculative_decode, speculative_rounds
from specdec_core.lab import exercises, museum
from specdec_core.lab.notebook import self_check, show_source
from specdec_core.widgets import bet, bet_board, origin_ribbon

# %% [markdown]
# ## A text with two authors
#
# Two models share a vocabulary of whole words; a word or a mark such as a comma is one **token**. Each
# model gives every token a probability of coming next. The **target** is deep and slow. The **draft** is
# shallow and quick. The draft guesses a few words, the target checks them all in one pass: that is
# **speculative decoding**. Below, they continue *Once upon a time* together. Look at the picture before
# you read on.

# %%
pair = load_pair("storyworld", dtype="float64")
prompt = pair.encode("Once upon a time")
out = speculative_decode(
    pair.target, pair.drafter, prompt, gamma=4, max_new_tokens=48,
    stop_tokens=pair.stop_tokens, randomness=Seeded(1),
)
origin_ribbon(out.trace, pair.decode)

# %% [markdown]
# Each numbered bracket is one **round**: up to four guesses, and one pass of the target, called a
# **target forward**. A round that ends in ↻ threw a guess away. A round that ends in + kept every guess
# and added a word of the target's own.
#
# In the code, `Seeded(1)` holds the chance: the same seed gives the same run. `float64` computes with 16
# digits, so that your numbers are the printed ones.
#
# **One question to keep in mind:** the draft wrote most of these words. Whose text is it?

# %% [markdown]
# ## What you will be able to do
#
# 1. Say what a *draft*, a *target forward*, a *corrected* token and a *bonus* token are.
# 2. Read the record of a real run, its *trace*, round by round.
# 3. Compute acceptance and tokens per target forward from counts.
# 4. Run the pair on your own prompt, and say what the result promises.
#
# Three beliefs that end here:
#
# - *"The small model lowers the quality."* The probability of every text, its **law**, stays the same.
# - *"A rejected word was a wrong word."* It was a word the draft offered too often.
# - *"Plain and speculative decoding must write the same words."* They must give each text the same
#   **probability**.

# %% [markdown]
# ## How this workbook works
#
# - The chapters build on each other: 00 to 06 tell the exact algorithm, 07 which distributions
#   it may use, 08 when it pays. Later ones are being written.
# - Run cells from top to bottom with <kbd>Shift</kbd>+<kbd>Enter</kbd>.
# - **Predict** cells hold a variable set to `None`, or a slider. Put your guess there first, then run
#   on. Where a chapter asks without either, answer in your head. Being wrong is the point: you remember
#   what surprised you. Guesses stay on your machine.
# - **Exercises** have a stub, a check below it, three hints and a solution: folded, or printed by a cell
#   whose output is hidden until you run it. A check answers *not attempted*, *wrong because ...* or
#   *right*.
# - The code a chapter prints is the code that ran: it comes from the package, under test. It uses
#   PyTorch. A little PyTorch or NumPy helps; without, skim it: the text says what it does.
# - Every picture has a sentence below it and a table inside it, and stays when you close the kernel.
#
# First, see whether your machine is ready.

# %%
self_check()

# %% [markdown]
# ## Predict
#
# Plain decoding takes one target forward for each word. The run above drafted `gamma=4` words a round
# and wrote 48 words with 16 target forwards. Now draft 8 words a round. A round can give up to 9 words,
# and it stops at the first rejection. How many target forwards will 48 words take? Put a number here,
# or use the slider and keep it.

# %%
my_forwards = None

# %%
forwards_bet = bet("00-forwards", "How many target forwards will 48 words take?", 1, 48, "target forwards")
forwards_bet

# %% [markdown]
# ## Run

# %%
longer = speculative_decode(
    pair.target, pair.drafter, prompt, gamma=8, max_new_tokens=48,
    stop_tokens=pair.stop_tokens, randomness=Seeded(1),
)
stats = longer.stats

# %%
print("tokens emitted: ", stats.emitted)
print("target forwards:", stats.target_forwards)

# %%
forwards_bet.settle(my_forwards, stats.target_forwards)

# %% [markdown]
# The counts behind it. `acceptance_rate` counts only drafts that were judged. A draft that comes after
# a rejection is never looked at. Eight rounds draft 8 words; the ninth drafts none, since one word was
# left to write.

# %%
print("drafted: ", stats.drafted)
print("accepted:", stats.accepted)
print("rejected:", stats.rejected)
print("never judged:", stats.drafted - stats.accepted - stats.rejected)

# %% [markdown]
# Two numbers sum a run up. `block_efficiency` is the mean number of tokens emitted per target forward.

# %%
print(f"acceptance rate          {stats.acceptance_rate:.3f}")
print(f"tokens per target forward {stats.block_efficiency:.3f}")

# %% [markdown]
# ## See: one round from the inside
#
# A run is a list of rounds. Take the tenth of the picture, where a guess was thrown away:

# %%
tenth = out.trace.rounds[9]
print("drafted:", [pair.decode([t]) for t in tenth.drafted])
print("verdict:", list(tenth.verdicts))
print("emitted:", [pair.decode([t]) for t in tenth.emitted])

# %% [markdown]
# Each drafted word came with two probabilities: $q$, how likely the draft was to offer it, and $p$,
# how likely the target was to write it. A coin $u$, uniform between 0 and 1, decided.

# %%
columns = tenth.drafted, tenth.target_prob, tenth.draft_prob, tenth.u, tenth.verdicts
for token, p, q, u, verdict in zip(*columns):
    print(f"{pair.decode([token]):>10}  p = {p:.3f}  q = {q:.3f}  u = {u:.3f}  {verdict}")

# %% [markdown]
# Where the target likes a word at least as much as the draft does ($p \ge q$), no coin can reject it.
# Where it likes the word less, the word stays with probability $p/q$. The rejected word was a good one:
# the target itself would write it about one time in five. The draft offers it a little more often.
# The fourth word stood after the rejected one, so its coin decided nothing.

# %% [markdown]
# ## Explain
#
# One round, in a picture. *Newest* is the last word of the text so far. A **row** holds a probability for
# every word of the vocabulary, for one place in the text.
#
# ```text
# text so far ──► draft ──► x1 ──► x2 ──► x3 ──► x4        four quick steps, one after the other
#      └────────► target over [newest, x1, x2, x3, x4]     one forward, five rows of probabilities
#                   row 0 judges x1, row 1 judges x2, ...  stop at the first rejection
#                   rejected at i: draw from what is left  (corrected)
#                   none rejected: draw from row 4         (bonus)
# ```
#
# In one line: keep $x$ while $u \cdot q(x) < p(x)$; at the first failure draw from
# $\max(p - q, 0)$, scaled to sum to one.
#
# In shapes: with $\gamma$ drafts and a vocabulary of $V$ words, the target gives $\gamma + 1$ rows of $V$
# probabilities, the draft gave $\gamma$ rows of $V$.
#
# In code, printed from the package:

# %%
from specdec_core.randomness import judge
from specdec_core.verify import residual_weights

show_source(judge)

# %%
show_source(residual_weights)

# %% [markdown]
# Two tricks of PyTorch: `cumprod` multiplies from the left, so that kept, kept, rejected, kept, as
# 1 1 0 1, becomes 1 1 0 0, and its sum counts the words before the first rejection. `clamp(min=0)` is
# max(·, 0).
#
# Chapter 03 proves that this rule is exact. For now, watch it run. `speculative_rounds` gives one
# round at a time, so text can be shown as it is written.

# %%
story = []
for step in speculative_rounds(
    pair.target, pair.drafter, prompt, max_new_tokens=24, stop_tokens=pair.stop_tokens,
    randomness=Seeded(2),
):
    story += step.emitted
    print(f"{len(step.emitted)} new | {pair.decode(story)}")

# %% [markdown]
# ## Is it still the target's text?
#
# The *temperature* says how much chance there is. At temperature 0 there is nothing random: the target
# always writes its most likely word, which is called *greedy*. So the two ways of decoding must agree
# word for word.

# %%
greedy = Sampling(temperature=0)
plain = autoregressive_decode(pair.target, prompt, sampling=greedy, max_new_tokens=48)
fast = speculative_decode(pair.target, pair.drafter, prompt, sampling=greedy, max_new_tokens=48)
print("same words:", plain.tokens == fast.tokens)
print("forwards:  ", plain.stats.target_forwards, "against", fast.stats.target_forwards)

# %%
print(pair.decode(prompt + fast.tokens))

# %% [markdown]
# Above temperature 0, one seed does not give the same words: the coins are used differently. What
# must agree is the **law**, the probability of every possible text. On a toy pair of two words, with
# $p = (.6, .4)$ and $q = (.8, .2)$, you can visit every outcome of every coin and add up. The law of two
# words first, then of the first word alone (its *marginal*).

# %%
toy_target = TableModel(lambda prefix: [0.6, 0.4], 2)  # p, whatever came before
toy_draft = TableDrafter(lambda prefix: [0.8, 0.2], 2)  # q

# %%
law = exact_law(
    lambda coins: speculative_decode(
        toy_target, toy_draft, [0], gamma=1, max_new_tokens=2, randomness=coins
    ).tokens
)
print({tokens: round(probability, 12) for tokens, probability in law.items()})

# %%
first_word = marginal(law, 1)
print({tokens: round(probability, 12) for tokens, probability in first_word.items()})

# %% [markdown]
# The draft offers word 0 with probability .8. The text has it with .6, as the target wants. The draft
# changed **how fast** the text came, not **which** text.

# %% [markdown]
# ## Predict once more
#
# Three drafts of the pair: `weak` (a table of word pairs), `default` (one layer) and `strong`
# (a few layers). Which will the target accept most often? Put their names in order, worst first, as a
# list: `["...", "...", "..."]`.

# %%
my_order = None

# %%
rates = {}
for name in ("default", "weak", "strong"):
    run = speculative_decode(
        pair.target, pair.drafters[name], prompt, max_new_tokens=100, randomness=Seeded(3)
    )
    rates[name] = run.stats.acceptance_rate
    print(f"{name:8} acceptance {rates[name]:.2f}, {run.stats.block_efficiency:.2f} tokens a forward")

# %%
exercises.check_order(my_order, rates)

# %% [markdown]
# A better draft is accepted more often. It also costs more for each guess. Chapter 08
# weighs the two.

# %% [markdown]
# ## Implement
#
# **Exercise 1** · easy · 5 minutes. Write a function that takes the rounds of a run and returns the
# tokens per target forward. Each round is one forward; `round.emitted` holds its tokens.

# %%
def tokens_per_forward(rounds):
    ...

# %%
exercises.check_tokens_per_forward(tokens_per_forward)

# %% [markdown]
# <details><summary>Hint 1</summary>Two counts are enough. Which one is <code>len(rounds)</code>?</details>
# <details><summary>Hint 2</summary>Add up <code>len(round.emitted)</code> over the rounds.</details>
# <details><summary>Hint 3</summary>Divide the tokens by the forwards, not the other way round.</details>
#
# <details><summary>Solution</summary><pre>
# return sum(len(round.emitted) for round in rounds) / len(rounds)</pre></details>
#
# The package keeps the two counts while it runs and divides them:

# %%
from specdec_core.trace import Stats

show_source(Stats.block_efficiency.fget)

# %% [markdown]
# **Exercise 2** · medium · 10 minutes. Write the acceptance test for one word. It takes `p` and `q` of
# the word and the coin `u`, and returns `True` where the word is kept.

# %%
def keep(p, q, u):
    ...

# %%
exercises.check_keep(keep)

# %% [markdown]
# <details><summary>Hint 1</summary>Keep with probability min(1, p/q).</details>
# <details><summary>Hint 2</summary>A coin <code>u</code> lies below a threshold with exactly that
# probability.</details>
# <details><summary>Hint 3</summary>Multiply both sides by q, so that nothing is divided.</details>
#
# <details><summary>Solution</summary><pre>
# return u * q &lt; p</pre></details>
#
# It is the line inside `judge`, which you printed above.

# %% [markdown]
# ## Break it
#
# A mistake that was found in public code: after a rejection, draw the next word from $p$ itself
# instead of from $\max(p - q, 0)$. It looks harmless. The museum of mistakes installs it from outside.
# Predict the probability of word 0 before you run: the right one is .6.

# %%
my_broken_probability = None

# %%
broken = exact_law(
    lambda coins: museum.decode(
        "M1", toy_target, toy_draft, [0], gamma=1, max_new_tokens=2, randomness=coins
    ).tokens
)
print({tokens: round(p, 12) for tokens, p in marginal(broken, 1).items()})

# %%
exercises.compare_prediction(my_broken_probability, marginal(broken, 1)[(0,)], "for word 0")

# %% [markdown]
# The text now has word 0 with .72: neither the target's law nor the draft's. No error, no warning, and
# each single text looks fine. Only the law shows it. Chapter 06 keeps a museum of such mistakes.

# %% [markdown]
# ## Try it yourself
#
# Change the prompt, `gamma`, the temperature or the seed, and run the cell again. Recipes begin with
# *Recipe: soup with*, code begins with *def add(*.

# %%
mine = speculative_decode(
    pair.target, pair.drafters["default"], pair.encode("def add("), gamma=6,
    sampling=Sampling(temperature=0.8), max_new_tokens=60, stop_tokens=pair.stop_tokens,
    randomness=Seeded(4),
)
origin_ribbon(mine.trace, pair.decode)

# %% [markdown]
# Storyworld has a few hundred words. A word it lacks is refused, never replaced in silence:

# %%
try:
    pair.encode("Once upon a computer")
except ValueError as error:
    print(error)

# %% [markdown]
# And the clock? This cell compares plain and speculative decoding on your machine, in one run. Its
# numbers are yours, so they are not compared with ours.

# %% tags=["nbval-ignore-output"]
import time

quick = load_pair("storyworld")
for name, decode in (
    ("plain", lambda: autoregressive_decode(quick.target, prompt, max_new_tokens=80)),
    ("speculative", lambda: speculative_decode(quick.target, quick.drafter, prompt, max_new_tokens=80)),
):
    decode()
    started = time.perf_counter()
    made = len(decode().tokens)
    print(f"{name:12} {made / (time.perf_counter() - started):6.0f} tokens per second")

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: on the bundled pair, 48 words took fewer target forwards than words; at temperature 0 the
#   words were the same, for one prompt and 48 words; on a toy pair the law was the target's to 12
#   digits.
# - Not shown: that the law is the target's for every pair and every setting (chapter 06), and that it
#   is always faster. It is not: see chapter 08.

# %% [markdown]
# The bet board holds the predictions you kept. It is empty until you keep one.

# %%
bet_board("00")

# %% [markdown]
# ## Five questions to recall
#
# <details><summary>1. What does one target forward over γ + 1 tokens give?</summary>γ + 1 rows of
# probabilities: one to judge each draft, and one for the bonus word.</details>
# <details><summary>2. When is a drafted word certain to be kept?</summary>When p is at least q.</details>
# <details><summary>3. Where does the word after a rejection come from?</summary>From what p has beyond q,
# scaled to sum to one.</details>
# <details><summary>4. What happens to drafts after a rejected one?</summary>They are dropped without being
# judged.</details>
# <details><summary>5. Same seed, plain against speculative: same words?</summary>Not above temperature 0.
# The law is the same.</details>

# %% [markdown]
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | token | a word, a mark or a line break: the unit a model writes |
# | target | the model whose text you want |
# | draft | the quick model that guesses, and also its guesses |
# | γ (gamma) | how many tokens are drafted in a round |
# | round, target forward | γ drafts and the one pass of the target that judges them |
# | p, q | probability of a token for the target, for the draft |
# | speculative decoding | the draft guesses a few words, the target checks them in one pass |
# | row | a probability for every word of the vocabulary, at one place in the text |
# | law | the probability of every possible text |
# | residual | what p has beyond q, max(p − q, 0), scaled to sum to one |
# | acceptance rate | the share of judged drafts that are kept |
# | block efficiency | mean number of tokens emitted per target forward |
# | corrected, bonus | the target's own word after a rejection, or after γ kept drafts |
#
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192), the algorithm
# - [Chen et al. 2023](https://arxiv.org/abs/2302.01318), the same idea at 70 billion parameters
# - [Stern et al. 2018](https://arxiv.org/abs/1811.03115), blockwise decoding, where it began
#
# **Next:** chapter 01 asks why decoding is slow in the first place.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 3 cold open, 5 predict and run, 7 one round, 5 greedy and law, 5 break it, 5 own prompt.
# - **Where a room gets stuck:** "rejected means wrong". Go back to p and q of one rejected word.
# - **Draw:** two bars, p and q, for three words; shade the overlap.
# - **Five-minute cut:** the ribbon, the forwards count, the broken law .72.
# </details>
