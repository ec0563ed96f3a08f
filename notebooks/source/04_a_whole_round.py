# %% [markdown]
# # 04 · Write a whole round
#
# **In this chapter you will have shown** that many coins in a row keep the target's law for whole texts,
# because a round stops at its first rejection and its last token comes from the residual, or as bonus from
# the target, while going on, reusing a coin or drawing the bonus elsewhere breaks the law, and raises no
# error.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 20 minutes | 35 minutes | chapters 00, 02 and 03 | offline, on a laptop CPU, in under 30 s |

# %%
import torch

from specdec_core import Draft, Scripted, Seeded, autoregressive_decode, exact_law, load_pair
from specdec_core import largest_difference, speculative_decode, verify
from specdec_core.lab import exercises, museum
from specdec_core.widgets import bet, coin_tape, coin_tape_by_hand

# %% [markdown]
# ## A good word is thrown away unread
#
# Four words are drafted after *... lived on the quiet farm*. Bars, thresholds $\min(1, p/q)$ and coins are
# as in chapter 03. Look at drafts 3 and 4.

# %%
pair = load_pair("storyworld", dtype="float64")
prompt = pair.encode("Once upon a time")
out = speculative_decode(
    pair.target, pair.drafter, prompt, gamma=4, max_new_tokens=60, randomness=Seeded(5)
)
coin_tape(out.trace, pair.decode, pair.target, pair.drafter, round=4)

# %% [markdown]
# The target gives *loved* nearly 1, more than the draft does. No coin could reject it. Its row was
# computed, its coin tossed. Nobody looked.
#
# **One question to keep in mind:** why is it right to throw *loved* away?

# %% [markdown]
# ## What you will be able to do
#
# 1. Say how a round can end, and what each ending writes.
# 2. Say why it stops at the first rejection, where the bonus comes from, and why each position has its
#    own coin.
# 3. Write the whole loop, its law checked to the last digit.
#
# Three beliefs that end here:
#
# - *"A good draft survives."* Only if all before it did.
# - *"The bonus is a gift, so any good word will do."* It is a draw from the target.
# - *"My first token has the right law, so my loop is right."* You will count what such a test sees.

# %% [markdown]
# ## Predict
#
# Below, the pair keeps about 77 of 100 judged drafts, and a round drafts four words. In how many of 100
# rounds are **all four** kept?

# %%
my_full_rounds = None

# %%
full_bet = bet("04-full-rounds", "In how many of 100 rounds are all four kept?", 0, 100, "rounds")
full_bet

# %% [markdown]
# ## Run
#
# Three stories of at most 123 words. A **stop token**, an id that means *the text is over*, may end them
# earlier.

# %%
runs = [
    speculative_decode(
        pair.target, pair.drafter, prompt, gamma=4, max_new_tokens=123,
        stop_tokens=pair.stop_tokens, randomness=Seeded(seed),
    )
    for seed in (1, 2, 3)
]
rounds = [step for run in runs for step in run.trace.rounds]

# %% [markdown]
# A round can end in five ways:

# %%
def ending(round):
    if round.finish_reason == "length":
        return "out of room"
    if round.finish_reason == "stop":
        return "stop token"
    if round.accepted == round.gamma:
        return "all kept, bonus"
    return "rejected in the middle" if round.accepted else "rejected at once"

# %%
counts = {}
for step in rounds:
    counts[ending(step)] = counts.get(ending(step), 0) + 1
for name, count in counts.items():
    print(f"{count:4} {name}")

# %%
full = round(100 * counts["all kept, bonus"] / len(rounds))
full_bet.settle(my_full_rounds, full)

# %%
kept = sum(run.stats.accepted for run in runs)
alpha = kept / (kept + sum(run.stats.rejected for run in runs))
print(f"alpha {alpha:.3f}, alpha ** 4 = {alpha**4:.3f}")

# %% [markdown]
# Were each draft kept with the same probability α, four in a row would come with $\alpha^4$. That is close,
# though α differs from place to place.
#
# One round of each kind, in words:

# %%
for name in counts:
    step = next(r for r in rounds if ending(r) == name)
    drafted, emitted = ([pair.decode([t]) for t in ids] for ids in (step.drafted, step.emitted))
    print(f"{name}\n    drafted {drafted}\n    written {emitted}")

# %% [markdown]
# The stop token has no text, so it shows as an empty string. Another stop, as a tape: whatever their coins
# say, drafts 3 and 4 are not written.

# %%
stories = [run.trace for run in runs]
coin_tape(stories[2], pair.decode, pair.target, pair.drafter, round=len(stories[2].rounds))

# %% [markdown]
# *Out of room* cuts nothing: a round writes up to γ + 1 tokens, so where only $r$ fit, $r - 1$ are drafted.

# %%
last = stories[1].rounds[-1]
print("drafted", last.gamma, "of 4, written", len(last.emitted), "and", last.finish_reason)

# %% [markdown]
# ## See: the coins of a whole round
#
# Tokens A and B, with p and q the same at every position. The coin v picks the last token: as bonus, A below
# .6, else B. Drag a ◀, click a bar, or use the controls. Find settings for each:
#
# 1. Three drafts kept, and a bonus B.
# 2. Draft 3 has a coin of 0 and is still not kept.
# 3. A kept draft that is *not* the target's favourite.
# 4. With drafts *B B B*: can any coins reject one?
#
# <details><summary>Answers</summary>1. Coins 1 and 3 below .75, v of .6 or more. 2. A coin above .75 at
# draft 1. 3. Draft 2: the target likes A more. 4. No: B has p above q.</details>

# %%
coin_tape_by_hand(".6 .4", ".8 .2", "A B A", u=(0.6, 0.5, 0.9), v=0.5)

# %% [markdown]
# The same in code. `verify` takes γ + 1 rows of the target and γ of the draft. `Scripted` holds the token
# to draw, and the coins. Here that token is 1, B: the residual has nothing else, and `Scripted([0], ...)`
# would raise *probability zero here*.

# %%
p = torch.tensor([[0.6, 0.4]] * 4, dtype=torch.float64)
q = torch.tensor([[0.8, 0.2]] * 3, dtype=torch.float64)
verdict = verify(p, Draft(torch.tensor([0, 1, 0]), q), Scripted([1], [0.6, 0.5, 0.9]))
print("kept:", int(verdict.accepted), "- then token", int(verdict.token))

# %% [markdown]
# ## Explain
#
# **Why stop.** The target's rows were computed for the drafted text. Once *Every* stands in place of *He*, the
# row that judges *loved* belongs to a text that no longer exists. Ask about the text that does:

# %%
from specdec_core.lab.law_check import rows_of

fourth = out.trace.rounds[3]
before = [token for step in out.trace.rounds[:3] for token in step.emitted]
row = rows_of(pair.target, [*prompt, *before])
point, he, loved, to = fourth.drafted

# %%
print(f"p(loved | ... farm. He)    = {row((point, he))[loved]:.4f}")
print(f"p(loved | ... farm. Every) = {row((point, fourth.token))[loved]:.4f}")

# %% [markdown]
# After *Every* the target has no use for *loved*.
#
# **Why the law holds.** Chapter 03 proved it for one position. A round puts positions in a row:
#
# ```text
# row 0 ── x1 kept ── row 1 ── x2 kept ── row 2 ── x3 rejected
#                                         └► y from max(p − q, 0), and STOP
# row 3, x4 and row 4 stay unread
# ```
#
# A draft is judged only if all drafts before it are in the text. So its row belongs to that text, and what
# comes out has the law p, given the text. So has a bonus. Multiply from left to right:
#
# $$P(x_1, \dots, x_n) = \prod_i p(x_i \mid x_1 \dots x_{i-1})$$
#
# which is how the target writes. Counted over every outcome of every coin, with p = (.6, .4) first, (.9, .1)
# after token 0, (.2, .8) after token 1, and q = (.5, .5):

# %%
target, drafter = museum.MISTAKES["M9"].example.models()
whole = exact_law(lambda coins: speculative_decode(
    target, drafter, [0], gamma=2, max_new_tokens=3, randomness=coins).tokens)
plain = exact_law(lambda coins: autoregressive_decode(
    target, [0], max_new_tokens=3, randomness=coins).tokens)
print("texts:", len(whole), " same law:", largest_difference(whole, plain) < 1e-12)

# %% [markdown]
# As a tree: all ways one round can go. The leaves of a text add up to the product of its p. Set the rule to
# *M9*, going on after a rejection: two of the four texts are off.

# %%
from specdec_core.widgets import proof_tree

proof_tree(".6 .4 | .9 .1 | .2 .8", ".5 .5", gamma=2)

# %% [markdown]
# **One fresh coin a position.** With $p = (.6, .4)$ and $q = (.4, .6)$ one draft is kept with
# $\sum \min(p, q) = .8$, and two coins keep two drafts with $.8^2 = .64$. One coin used twice (M6) keeps
# both too often: low enough for the first, it is likely low enough for the second.

# %%
same_coin = museum.MISTAKES["M6"].example
for mistake in (None, "M6"):
    both = museum.mean(same_coin, mistake, lambda run: run.trace.rounds[0].accepted == 2)
    print(f"{mistake or 'right':6} both kept with {both:.2f}")

# %% [markdown]
# **The bonus.** After γ kept drafts one row is left, row γ: p for the text that is there. A draw from it
# is one more token, for free. In shapes: drafts `[γ]`, q `[γ, V]`, p `[γ + 1, V]`. The code adds a row
# of zeros to q, and with q = 0 the residual *is* p:

# %%
from specdec_core.lab.notebook import show_source
from specdec_core.verify import token_rule

show_source(token_rule)

# %% [markdown]
# **The end.** A round offers a block of up to γ + 1 tokens. Every one is looked at, not only the last:

# %%
from specdec_core.text import Ending

show_source(Ending.keep)

# %% [markdown]
# ## Implement
#
# **Exercise 1** · easy · 5 minutes. Count the drafts that are kept. `p` is a list of γ + 1 rows and `q` of
# γ, each row a list; `drafted` are ids, `coins` numbers in [0, 1).

# %%
def count_kept(p, q, drafted, coins):
    ...

# %%
exercises.check_count_kept(count_kept)

# %% [markdown]
# <details><summary>Hint 1</summary>Row i of p and q, at the id <code>drafted[i]</code>, with
# <code>coins[i]</code>.</details>
# <details><summary>Hint 2</summary>Kept while <code>u * q &lt; p</code>. And at the first failure?</details>
# <details><summary>Hint 3</summary>Return <code>i</code> there, <code>len(drafted)</code> after the
# loop.</details>
#
# The package needs no loop: a running product of zeros and ones is 1 until the first zero.

# %%
from specdec_core.randomness import judge

show_source(judge)

# %% [markdown]
# **Exercise 2** · easy · 5 minutes. A round offers `block`. At most `room` tokens fit, and each id in
# `stop_tokens` ends the text. Return what is written, the stop token included.

# %%
def cut_block(block, stop_tokens, room):
    ...

# %%
exercises.check_cut_block(cut_block)

# %% [markdown]
# <details><summary>Hint 1</summary>Go through the block from the left.</details>
# <details><summary>Hint 2</summary>A stop token or <code>room</code> tokens end it.</details>
# <details><summary>Hint 3</summary>If token i is a stop token or <code>i + 1 == room</code>, return
# <code>block[: i + 1]</code>.</details>
#
# The solution is `Ending.keep`, printed above.

# %% [markdown]
# **Exercise 3** · hard · 20 minutes. Write the loop. `p(text)` and `q(text)` give a row of probabilities, a
# tensor, after the list of new tokens `text`. All chance comes from two calls:
#
# - `randomness.categorical(weights)` draws a token id; the weights need not sum to one;
# - `randomness.first_rejection(target_prob, draft_prob)` takes p and q of the drafted tokens as tensors,
#   tosses a coin for each, and says how many are kept.
#
# Return the list of new tokens. The check runs **every** outcome of every draw and coin, and knows the
# museum's mistakes.

# %%
def my_decode(p, q, gamma, max_new_tokens, stop_tokens, randomness):
    ...

# %%
exercises.check_my_decode(my_decode)

# %% [markdown]
# <details><summary>Hint 1</summary>Until the text ends: draft a chain, ask how many are kept, draw one
# token, cut the block.</details>
# <details><summary>Hint 2</summary>Draft with <code>int(randomness.categorical(q(text + drafted)))</code>, at
# most <code>min(gamma, max_new_tokens - len(text) - 1)</code> times. For the verdict:
# <code>torch.tensor([p(text + drafted[:i])[x] for i, x in enumerate(drafted)])</code>, and so for
# q.</details>
# <details><summary>Hint 3</summary>The last token comes from <code>p(text + drafted[:kept])</code>. After a
# rejection, subtract q's row first and <code>.clamp(min=0)</code>.</details>
#
# A short solution, then the package's own loop, which gets its γ + 1 rows from one forward and rolls caches
# back (chapter 05).

# %% jupyter={"outputs_hidden": true}
from specdec_core.lab.exercises.whole_loop import reference_decode

show_source(reference_decode)

# %%
from specdec_core.decode import _rounds

show_source(_rounds)

# %% [markdown]
# ## Break it
#
# Six changes to a round, from the museum. A common test measures how far the law of the **first token** is
# from the target's, in total variation (chapter 03). How many of the six does it see?

# %%
my_seen = None

# %%
seen, six = 0, ("M9", "M7", "M8", "M6", "M6b", "M20")
for mistake in six:
    toy = museum.MISTAKES[mistake].example
    one, two = (museum.distance(toy, mistake, length) for length in (1, 2))
    seen += one > 1e-9
    print(f"{mistake:4} {museum.MISTAKES[mistake].title:42} one token {one:.2f}   two {two:.2f}")

# %%
exercises.compare_prediction(my_seen, seen, "of six")

# %% [markdown]
# None. The first token is always judged by its own coin, in its own text. Look at more tokens: for the
# bonus, at γ + 1.
#
# M20 leaves the law alone and is only slower. Tokens of its first round:

# %%
toy = museum.MISTAKES["M20"].example
for mistake in (None, "M20"):
    written = museum.mean(toy, mistake, lambda run: len(run.trace.rounds[0].emitted))
    print(f"{mistake or 'right':6} {written:.2f}")

# %% [markdown]
# M9 on the round of the beginning, with the same drafts and coins. *He* becomes *Every*, and the loop goes
# on to judge *loved* by its old row. The last word, *dig*, we chose:

# %%
verb = pair.encode("dig")[-1]
broken = museum.decode(
    "M9", pair.target, pair.drafter, [*prompt, *before], gamma=4, max_new_tokens=5,
    randomness=Scripted([*fourth.drafted, fourth.token, verb], fourth.u),
)
print("...", pair.decode([*before[-6:], *broken.tokens]))

# %% [markdown]
# And M17, the careless end: it looks at the last token of a block only. Stop ids 1 and 2, γ = 2,
# `max_new_tokens=3`:

# %%
toy = museum.MISTAKES["M17"].example
right, careless = toy.law(), toy.law("M17")
past_the_end = sum(careless[text] for text in careless if text not in right)
print(f"texts that should not exist: {past_the_end:.2f}")

# %% [markdown]
# ## Try it yourself
#
# Change the prompt, the draft, γ (up to 8) or the seed. Move a kept draft's coin above its threshold: the
# rest falls away.

# %%
mine = speculative_decode(
    pair.target, pair.drafters["strong"], pair.encode("Recipe: soup with"), gamma=6,
    max_new_tokens=40, stop_tokens=pair.stop_tokens, randomness=Seeded(1),
)
coin_tape(mine.trace, pair.decode, pair.target, pair.drafters["strong"], round=2)

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: the five endings, in three runs of one prompt; the exact law of three tokens on one toy pair;
#   six mistakes on their toys, none seen in the first token. If you did exercise 3: the exact law of
#   *your* loop, on four toys.
# - Not shown: the law of the real pair (chapter 06), and the caches (chapter 05).

# %% [markdown]
# ## Five questions to recall
#
# <details><summary>1. Why does a round stop at the first rejection?</summary>All rows after it belong to
# another text.</details>
# <details><summary>2. Where does the bonus come from?</summary>From the target's row γ of the same
# forward.</details>
# <details><summary>3. How many coins does a round need?</summary>γ, one fresh coin a position, and
# one draw for the last token.</details>
# <details><summary>4. The second of four kept drafts is a stop token. What is written?</summary>Two
# tokens.</details>
# <details><summary>5. Which test sees a wrong bonus?</summary>The law of at least γ + 1
# tokens.</details>

# %% [markdown]
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | never judged | a draft after the first rejection: no verdict |
# | block | the kept drafts and the token after them |
# | stop token | an id that ends a text and belongs to it |
# | full accept | all γ drafts kept, and a bonus |
#
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192), Algorithm 1
# - [Chen et al. 2023](https://arxiv.org/abs/2302.01318), Algorithm 2
#
# **Next:** chapter 05 asks what happens to the caches when drafts are thrown away.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 4 cold open, 6 endings, 6 tape, 8 why, 20 exercises, 6 break it.
# - **Where a room gets stuck:** "but *loved* was right". Write both texts on the board and ask for the
#   next word.
# - **Draw:** five rows, four drafts, a cross at the second; rub out all to its right.
# - **Five-minute cut:** the tape, *loved* in both texts, the six lines.
# </details>
