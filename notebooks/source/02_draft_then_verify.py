# %% [markdown]
# # 02 · Draft a chain, verify it in one pass
#
# **In this chapter you will have shown** that one target forward judges a whole chain of guesses,
# because the causal mask makes each row the answer to its own question, while reading the rows one
# place off writes another text without any error.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 20 minutes | 30 minutes | 00 and 01, a little PyTorch; skim printed code | offline, on a laptop CPU, in under 30 s |

# %%
import torch
from specdec_core import Sampling, Seeded, TableDrafter, TableModel, load_pair
from specdec_core import autoregressive_decode, exact_law, marginal, speculative_decode, speculative_rounds
from specdec_core.lab import exercises, museum
from specdec_core.lab.notebook import show_source
from specdec_core.widgets import bet, staircase

# %% [markdown]
# ## Four guesses, five answers
#
# Temperature 0: both models take their most likely word. The second round of a run:

# %%
pair = load_pair("storyworld", dtype="float64")
target, drafter, prompt = pair.target, pair.drafter, pair.encode("Once upon a time")
greedy = Sampling(temperature=0)

def words(tokens):
    return [pair.decode([token]) for token in tokens]

# %%
first, second, *later = speculative_rounds(
    target, drafter, prompt, gamma=4, sampling=greedy, max_new_tokens=16
)
context = prompt + list(first.emitted)
print("text:   ", pair.decode(context))
print("guesses:", words(second.drafted))
print("emitted:", words(second.emitted))

# %% [markdown]
# The draft offered four words. The target read them in one forward, kept *brown*, threw *hedgehog* out, and
# wrote *hen*. That forward gave five rows of probabilities.
#
# **One question to keep in mind:** which of the five rows threw *hedgehog* out, and which wrote *hen*?

# %% [markdown]
# ## What you will be able to do
#
# 1. Draft a chain, and say why its words come one after the other.
# 2. Say what each row of a target forward has seen, and which word it judges.
# 3. Verify greedily: keep guesses while they match, then take the target's own word.
# 4. Recognise a row that is read one place off, and say what a tie rule is for.
#
# Four beliefs that end here:
#
# - *"The draft guesses four words at once."* It takes four steps, each after the one before.
# - *"Four guesses need four checks."* One forward checks them all.
# - *"Row 1 judges the first guess."* Row 1 has already read it.
# - *"Greedy verification is an algorithm of its own."* It is the same rule, with chance taken out.

# %% [markdown]
# ## Predict
#
# A toy of two words, A and B: the text begins with either, and then each word repeats the one before it
# with probability .9. The draft is a copy of the target, so two guesses made one after the other are both
# accepted. Now it draws both from **the same** context. How many of 2 are accepted on average?
#
# And the target reads the text and four guesses in one forward, which gives five rows. Swap the third guess
# and run it again. How many of the five rows stay the same, to the last bit?

# %%
my_accepted = None
my_same_rows = None

# %%
rows_bet = bet("02-rows", "How many of the five rows stay the same?", 0, 5, "rows")
rows_bet

# %% [markdown]
# ## Run: the draft is a chain

# %%
drafter.rollback(0)
before = drafter.model.forwards
guesses = drafter.propose(context, 4, greedy, Seeded(0)).tokens.tolist()
print(len(guesses), "guesses,", drafter.model.forwards - before, "forwards of the draft")
for i, guess in enumerate(guesses):
    print(" ".join(words(context[-3:] + guesses[:i])), "→", pair.decode([guess]))

# %% [markdown]
# Each guess is read before the next is made: in the package's loop, as `feed`. (`keep=1`: the last row
# only; `reshape(1)`: a list of one; `torch.cat`: end to end.)

# %%
show_source(type(drafter).propose)

# %% [markdown]
# A shortcut: ask the draft once, and draw all four guesses from its answer.

# %%
alone = []
for i in range(4):
    drafter.rollback(0)
    alone += drafter.propose(context, 1, greedy, Seeded(i)).tokens.tolist()
print(words(alone))

# %% [markdown]
# Four guesses for one place; above temperature 0 they would only vary. This is the museum's M21. What does
# it cost on the toy?

# %%
def copying(text):
    after = {0: [0.9, 0.1], 1: [0.1, 0.9]}  # A follows A, B follows B
    return after[text[-1]] if len(text) > 1 else [0.5, 0.5]

copies = TableModel(copying, 2), TableDrafter(copying, 2), [0]

def toy_law(models, mistake, value):
    return exact_law(lambda coins: value(museum.decode(
        mistake, *models, gamma=2, max_new_tokens=3, randomness=coins
    )))

# %%
for mistake in (None, "M21"):
    law = toy_law(copies, mistake, lambda run: [run.stats.accepted])
    mean = sum(accepted * p for (accepted,), p in law.items())
    text = marginal(toy_law(copies, mistake, lambda run: run.tokens), 2)
    print("chain      " if mistake is None else "one context", f"{mean:.3f} of 2 accepted")
    print("    law", {two: round(p, 12) for two, p in text.items()})
exercises.compare_prediction(my_accepted, round(mean, 9), "of 2")

# %% [markdown]
# The first guess is as good as ever; the second is accepted with .6, not 1. Yet the text keeps its law:
# the draft recorded the $q$ it drew from, and the target corrects it. A bad draft costs forwards, never
# words.

# %% [markdown]
# ## Run: one forward, five rows
#
# Now the target reads the text and the four guesses. We keep five rows: after the newest word of the text
# and after each guess. Then the slow way: five forwards, each with one guess more.

# %%
def rows_after(tokens):
    target.rollback(0)
    return target.forward(context + tokens, keep=len(tokens) + 1)

rows = rows_after(guesses)
print(tuple(rows.shape))
separate = torch.cat([rows_after(guesses[:i])[-1:] for i in range(5)])
print("largest difference below 1e-12:", bool((rows - separate).abs().max() < 1e-12))

# %% [markdown]
# One forward gave what five give. How can row 1 be right, with *named* and *Ella* in the same forward?
# Swap the third guess and compare, bit by bit:

# %%
swapped = [*guesses[:2], pair.encode("fox")[-1], guesses[3]]
same = [torch.equal(a, b) for a, b in zip(rows, rows_after(swapped))]
print({f"row {i}": "same" if equal else "changed" for i, equal in enumerate(same)})
rows_bet.settle(my_same_rows, sum(same))

# %% [markdown]
# Rows 0, 1 and 2 never saw the third guess, by the **causal mask**: each position sees itself and what lies
# before it. `tril(length)` keeps the ones up to the diagonal, moved right by `length`; `[None, None]` adds
# two axes.

# %%
from specdec_core.cache import causal_mask

show_source(causal_mask)
print(causal_mask(rows=5, length=2, device="cpu")[0, 0].int())  # two words of text before

# %% [markdown]
# ## See: the staircase
#
# The same mask, with real words. Row 0 is done, row 1 is in hand (▶). Drop it on the token it
# **judges**: a click or Enter on a **?**. A wrong row stays in hand. When all are right, set *Rows* to a
# shift, and watch the text and the law of a toy.

# %%
staircase(pair)

# %% [markdown]
# Each row judges the first token it does not see. Row 0 judges the first guess, row 1 the second; row 4
# has seen them all and gives the bonus token. So row 1 threw *hedgehog* out, and wrote *hen*.

# %% [markdown]
# ## Explain
#
# ```text
# fed      newest    x1       x2       x3       x4
#            │        │        │        │        │
# row        0        1        2        3        4
#            │        │        │        │        │
# judges     x1       x2       x3       x4     (bonus)
# ```
#
# Row $i$ is the distribution after $i$ accepted guesses:
# $p_i(\cdot) = p(\cdot \mid \text{text}, x_1, \dots, x_i)$, for $i = 0, \dots, \gamma$.
#
# In shapes: the tokens are $[\gamma]$, the rows $[\gamma + 1, V]$. The $p$ of each guess is $[\gamma]$: from
# row $i$ the entry of $x_{i+1}$. In code it is the first `gather`, which takes one entry of each row;
# the last row is left out. It comes in by `row = accepted[...]`: after $n$ kept guesses the next word is
# drawn from row $n$, whether a guess was rejected there or none was left. (`take_along_dim`: a whole
# row; `unsqueeze`, `squeeze`: one axis more, one less; `pad`: zeros at the end.)

# %%
from specdec_core.verify import token_rule

show_source(token_rule)

# %% [markdown]
# ## Run: accept greedily
#
# At temperature 0 no coin is needed. Keep guesses while each is its row's most likely word. At the first
# that is not, stop, and take the row's word.

# %%
best = rows.argmax(-1).tolist()
for i, (guess, own) in enumerate(zip(guesses, best)):
    verdict = "keep" if guess == own else "stop here"
    print(f"row {i}: guess {pair.decode([guess]):9} target {pair.decode([own]):6} {verdict}")
    if guess != own:
        break

# %% [markdown]
# No new algorithm. At temperature 0 a distribution is *one-hot*, all its mass on one word: $p(x)$ is 1
# or 0, and $q(x)$ is 1. The test $u \cdot q < p$ of chapter 00 then keeps at 1 and rejects at 0, whatever
# the coin.
#
# A kept guess is the word plain decoding would have written, and so is the word after it. So the text is
# the same, whoever drafts:

# %%
plain = autoregressive_decode(target, prompt, sampling=greedy, max_new_tokens=48)
print("plain    ", plain.stats.target_forwards, "forwards")
for name in ("default", "weak", "strong"):
    other = pair.drafters[name]
    fast = speculative_decode(target, other, prompt, sampling=greedy, max_new_tokens=48)
    same = fast.tokens == plain.tokens
    print(f"{name:9} {fast.stats.target_forwards} forwards, same words: {same}")

# %% [markdown]
# ## One tie rule
#
# What if two words share the top? The package takes the lowest id. Another rule, as good: the highest.
# (`flip(-1)` turns a row round.)

# %%
class HighestId(Sampling):
    def probs(self, logits, tokens=None):
        return super().probs(logits.flip(-1), tokens).flip(-1)

tied = TableModel(lambda text: [0.4, 0.4, 0.2], 3)
tied_draft = TableDrafter(lambda text: [0.4, 0.4, 0.2], 3)
highest = HighestId(temperature=0)

# %%
run = autoregressive_decode(tied, [0], sampling=greedy, max_new_tokens=5)
print("plain, lowest ", run.tokens)
for label, rules in (
    ("lowest, lowest ", {"sampling": greedy}),
    ("target highest ", {"sampling": highest, "draft_sampling": greedy}),
    ("draft highest  ", {"sampling": greedy, "draft_sampling": highest}),
):
    run = speculative_decode(tied, tied_draft, [0], gamma=2, max_new_tokens=5, **rules)
    print(label, run.tokens, "accepted", run.stats.accepted)

# %% [markdown]
# If verification breaks ties unlike plain decoding, the words differ, though neither is wrong. If only
# the draft does, the words stay and acceptance falls. So: one rule, in one place. (PyTorch's `max` takes the
# first of equal values; `topk` promises no order.)

# %% [markdown]
# ## Implement
#
# **Exercise 1** · easy · 5 minutes. From a row's number and the list of drafted tokens, return a
# pair: the list of drafts the row sees, and the draft it judges, or `None`.

# %%
def row_duty(row, drafted):
    ...

# %%
exercises.check_row_duty(row_duty)

# %% [markdown]
# <details><summary>Hint 1</summary>Row 0 sees no draft. How many does row 2 see?</details>
# <details><summary>Hint 2</summary><code>drafted[:row]</code> is what the row sees.</details>
# <details><summary>Hint 3</summary>It judges the first it does not see, <code>drafted[row]</code>, unless
# there is none.</details>
# <details><summary>Solution</summary>
#
# ```python
# return drafted[:row], drafted[row] if row < len(drafted) else None
# ```
# </details>
#
# **Exercise 2** · medium · 10 minutes. Draft a chain. `next_token(text)` gives the draft's token after a
# list of tokens. Return the list of `gamma` drafts, maybe none, and leave `context` as it is.

# %%
def draft_chain(next_token, context, gamma):
    ...

# %%
exercises.check_draft_chain(draft_chain)

# %% [markdown]
# <details><summary>Hint 1</summary>Begin with a list of your own: <code>list(context)</code>.</details>
# <details><summary>Hint 2</summary>In a loop of gamma steps, ask for a token and append it.</details>
# <details><summary>Hint 3</summary>Return only what follows the context.</details>
#
# <details><summary>Solution</summary>
#
# ```python
# text = list(context)
# for _ in range(gamma):
#     text.append(next_token(text))
# return text[len(context):]
# ```
# </details>
#
# **Exercise 3** · medium · 10 minutes. Verify greedily. `best[i]` is the most likely token of row `i`.
# Return a pair (count, token): how many drafts are kept, and the token after them.

# %%
def greedy_verdict(drafted, best):
    ...

# %%
exercises.check_greedy_verdict(greedy_verdict)

# %% [markdown]
# <details><summary>Hint 1</summary>Count matches <code>drafted[i] == best[i]</code>, and stop at the first
# that fails.</details>
# <details><summary>Hint 2</summary>After n kept drafts the next token comes from row n.</details>
# <details><summary>Hint 3</summary>That holds for n = gamma too: <code>best</code> has one entry
# more.</details>
#
# <details><summary>Solution</summary>
#
# ```python
# n = 0
# while n < len(drafted) and drafted[n] == best[n]:
#     n += 1
# return n, best[n]
# ```
# </details>
#
# `judge`, printed in chapter 00, needs no loop: `cumprod`, a running product, is 0 from the first
# failure on.

# %% [markdown]
# ## Break it
#
# **Row off by one** (M11). The first guess is judged with row 1, the second with row 2. Another toy:
# the first word is A with .6; after A comes A with .9, after B with .2. The draft says .5 everywhere.
# With which probability does the text begin with A? Right is .6.

# %%
my_broken_probability = None

# %%
def by_last(text):
    after = {0: [0.9, 0.1], 1: [0.2, 0.8]}
    return after[text[-1]] if len(text) > 1 else [0.6, 0.4]

toy = TableModel(by_last, 2), TableDrafter(lambda text: [0.5, 0.5], 2), [0]

# %%
right = exact_law(
    lambda coins: speculative_decode(*toy, gamma=2, max_new_tokens=3, randomness=coins).tokens
)
print("right", {text: round(p, 12) for text, p in marginal(right, 1).items()})

# %%
begins = marginal(toy_law(toy, "M11", lambda run: run.tokens), 1)
print("M11  ", {text: round(p, 12) for text, p in begins.items()})
exercises.compare_prediction(my_broken_probability, round(begins[(0,)], 9), "for A")

# %% [markdown]
# Row 1 answers "what comes after the guess?", and is taken for "how good is the guess?". On the real pair:

# %%
for mistake in (None, "M11"):
    run = museum.decode(
        mistake, target, drafter, prompt, gamma=4, sampling=greedy, max_new_tokens=16
    )
    print(mistake or "right", run.stats.target_forwards, "forwards:", pair.decode(run.tokens))

# %% [markdown]
# At first every second word is missing, and no guess is kept. One row too **early** doubles words instead:
# see shift −1 of the staircase. There the toy's first word keeps its law; only two words together betray
# it.

# %% [markdown]
# **The greedy test, while sampling** (M5). At temperature 1, keep a draft only where it is the target's
# likeliest word, and otherwise write that word. Predict again: how probable is A first?

# %%
my_greedy_probability = None

# %%
begins = marginal(toy_law(toy, "M5", lambda run: run.tokens), 1)
print("M5 law:", {text: round(p, 12) for text, p in begins.items()})
exercises.compare_prediction(my_greedy_probability, round(begins[(0,)], 9), "for A")

# %% [markdown]
# Only A comes first: the chance is gone. Which checks of the museum see these mistakes? Each compares
# with the right run: the law of the first token, of two, of the whole text; *accepted length* is the
# mean number of drafts kept.

# %%
for mistake in ("M5", "M11", "M21"):
    print(f"{mistake:4} {museum.MISTAKES[mistake].title}: {', '.join(museum.seen_by(mistake))}")

# %% [markdown]
# M21 keeps the law, so only a count of accepted guesses sees it.

# %% [markdown]
# ## Try it yourself
#
# Your own prompt, gamma and draft. At temperature 0 no choice may change the words.

# %%
mine = pair.encode("Recipe: soup with")
slow = autoregressive_decode(target, mine, sampling=greedy, max_new_tokens=30)
fast = speculative_decode(
    target, pair.drafters["strong"], mine, gamma=6, sampling=greedy, max_new_tokens=30
)
print(pair.decode(fast.tokens))
print("same words:", slow.tokens == fast.tokens, "| forwards:", fast.stats.target_forwards)

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: on one context of the bundled pair, one forward gave the rows of five, to 1e-12 in float64.
#   At temperature 0, four speculative runs after two prompts wrote plain decoding's words. Two toy laws,
#   exactly.
# - Not shown: the rule **with** chance (chapter 03), the caches (chapter 05), time saved (chapter 08,
#   planned). In float32 another number of rows gives other last bits, so two nearly equal words may swap.

# %% [markdown]
# ## Five questions to recall
#
# <details><summary>1. Why does drafting four words take four steps?</summary>Each guess is part of the
# context of the next.</details>
# <details><summary>2. What has row 2 seen, and what does it judge?</summary>The text, x1 and x2. It judges
# x3.</details>
# <details><summary>3. Why is one forward as good as five?</summary>The causal mask hides later tokens, so
# each row is what a forward of its own would give.</details>
# <details><summary>4. Greedy: two of four guesses match, then one does not. What is emitted?</summary>The
# two, and the most likely token of row 2.</details>
# <details><summary>5. Draws from one context instead of a chain: what suffers?</summary>Acceptance only.
# The law stays.</details>

# %% [markdown]
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | chain | guesses, each made after the ones before |
# | newest | the last token of the text, fed before the guesses |
# | row i | the target's probabilities after the text and i guesses; it judges guess i + 1 |
# | causal mask | each position sees itself and what lies before it |
# | greedy acceptance | keep guesses while each is its row's most likely token |
# | tie rule | which of several most likely tokens is taken; here the lowest id |
#
# - [Stern et al. 2018](https://arxiv.org/abs/1811.03115): predict, verify, accept, at temperature 0
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192): the rows, and the rule with chance
# - [Xia et al. 2022](https://arxiv.org/abs/2203.16487): drafts for a greedy target
#
# **Next:** chapter 03 puts chance back: one coin for each guess, and a proof of four lines.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 4 cold open, 8 chain, 8 rows and mask, 10 staircase, 10 greedy and ties, 10 break it.
# - **Where a room gets stuck:** "row 1 judges the first guess". Ask what row 1 has read.
# - **Draw:** the staircase, a stair per guess, with the judged token on it.
# - **Five-minute cut:** the cold open, the staircase, the text with every second word missing.
# </details>
