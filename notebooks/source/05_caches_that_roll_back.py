# %% [markdown]
# # 05 · Roll back two caches
#
# **In this chapter you will have shown** that each cache can forget rejected guesses by moving one
# number, because a forward writes over whatever lies past it, while a forgotten roll-back changes the
# text without any error.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 20 minutes | 25 minutes | chapters 01 to 04 | offline, on a laptop CPU, in under 30 s |

# %%
from specdec_core import CausalLM, ModelDrafter, Sampling, Seeded, load_pair
from specdec_core import speculative_decode, speculative_rounds
from specdec_core.lab import exercises, museum
from specdec_core.lab.ledger import record_caches
from specdec_core.lab.notebook import show_source
from specdec_core.widgets import bet, draw_kv_ledger, kv_ledger

# %% [markdown]
# ## One round, and what it leaves behind
#
# The end of one round. The draft offered *, a brave tall*. The comma passed, *a* did not, and the
# target wrote *there*. Below the text lie both caches, one cell a row.

# %%
pair = load_pair("storyworld", dtype="float64", max_length=512)
prompt = pair.encode("Once upon a time")
ledger = record_caches(pair, prompt, gamma=4, max_new_tokens=24, seed=27)
draw_kv_ledger(ledger, pair.decode, step=3)

# %% [markdown]
# **One question to keep in mind:** three guesses were thrown away, and the target's cache drops three
# rows. Why does the draft's drop two?

# %% [markdown]
# ## What you will be able to do
#
# 1. Say how many rows each cache holds before and after any round.
# 2. Roll back a cache of fixed size, and one that grows.
# 3. Compute the bytes of a row.
# 4. Tell from the rows which cache is wrong, and what that does to text, speed and memory.
#
# Four beliefs that end here:
#
# - *"Rolling back copies the cache."* Here it sets one number.
# - *"The cache holds the whole text."* Never the newest token.
# - *"A wrong cache would crash, or write nonsense."* It can write fluent text of another law.
# - *"A wrong draft cache spoils the output."* It costs acceptance, nothing else.

# %% [markdown]
# ## Predict
#
# A **row** is what a cache keeps of one token: its keys and values, in every layer. The target reads
# the newest token and all $\gamma$ guesses. The draft reads each guess to make the next.
#
# Before round 4 of this run both caches hold 15 rows. Four words are drafted, all pass, and the target
# adds a bonus token. How many rows does each cache hold then?

# %%
my_target_rows = None
my_draft_rows = None

# %%
rows_bet = bet("05-target-rows", "How many rows does the target's cache hold then?", 0, 40, "rows")
rows_bet

# %% [markdown]
# ## Run
#
# The same run, with the rows of both caches:

# %%
rounds = list(speculative_rounds(
    pair.target, pair.drafter, prompt, gamma=4, max_new_tokens=24,
    stop_tokens=pair.stop_tokens, randomness=Seeded(27),
))
print("round  drafted  kept   target rows   draft rows")
for number, r in enumerate(rounds, start=1):
    print(f"{number:5}  {r.gamma:7}  {r.accepted:4}   {r.target_length[0]:4} → {r.target_length[1]:<4} "
          f"  {r.draft_length[0]:4} → {r.draft_length[1]:<4}")

# %%
rows_bet.settle(my_target_rows, rounds[3].target_length[1])
exercises.compare_prediction(my_draft_rows, rounds[3].draft_length[1], "draft rows")

# %% [markdown]
# Round 1: the target has read the prompt without its newest token. The draft has read nothing yet, and
# reads the prompt before its first guess.
#
# Round 4: the draft made its fourth guess and never read it: there was no fifth to make. When all four
# pass, that row is missing, and the next round starts by feeding it.
#
# Now count the text without its newest token, and compare:

# %%
needed = len(prompt) - 1
for r in rounds:
    needed += len(r.emitted)
    print(f"needed {needed:2}  target {r.target_length[1] - needed:+d}  "
          f"draft {r.draft_length[1] - needed:+d}")

# %% [markdown]
# The target is right after every round, the draft never above.
#
# Are they the right **rows**? Feed 12 tokens, then four wrong guesses. Roll back, read the rest, and
# compare with a pass without a cache.

# %%
import torch

text = prompt + [token for r in rounds for token in r.emitted]
pair.target.rollback(0)
pair.target.forward(text[:12])
pair.target.forward(text[:4])  # four guesses that turn out wrong
pair.target.rollback(12)
cached = pair.target.forward(text[12:])

# %%
plain = pair.target.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, 12:].detach()
difference = (cached - plain).abs().max().item()
print("within 1e-12:", difference < 1e-12)
print("and in each round of the ledger:", max(e.target.error for e in ledger.rounds) < 1e-12)

# %% tags=["nbval-ignore-output"]
print(f"largest |logit - logit without cache|: {max(e.target.error for e in ledger.rounds):.1e}")

# %% [markdown]
# The wrong guesses' rows stay in memory, unread, until a forward writes over them.
#
# ## See: the ledger of both caches
#
# The arrows of **step** go through draft, verify and roll back. Row 0, *special*, is the mark that starts
# every text.
#
# 1. Find a round after which the draft's cache has a dotted cell: *not fed yet*.
# 2. Set **fault** to *target never rolled back* and step on. Watch the cells with **!** and **↔**.
# 3. Try *one row too far* up to the last step. How many words change?
# 4. Try *draft never rolled back*. Do words change? Which mark in the lowest panel moves?

# %%
stage = kv_ledger(pair, "Once upon a time", gamma=4, seed=27, step=6)
stage

# %% [markdown]
# The lowest panel is your test above, for each round.
#
# <details><summary>Answers to 3 and 4</summary><i>One row too far</i> changes no word of this run,
# and its law is wrong. <i>Draft never rolled back</i> changes words, and its law is right (see <i>Break
# it</i>): other guesses met the same coins. A wrong row lifts its own model's mark only.</details>
#
# **One sampled text proves nothing.** The rows and the logits do.
#
# ## Explain
#
# The text has $L$ tokens when the round begins; $n$ of $\gamma$ guesses pass.
#
# | step | the model reads | rows then | it keeps | trim |
# |---|---|---|---|---|
# | draft | what it lacks, newest, all guesses but the last | L−1+γ | at most L+n | γ−n−1 |
# | verify | newest, all guesses | L+γ | L+n | γ−n |
#
# One of four kept: the target drops three rows, the draft two. It never read its last guess.
#
# The round emits $n + 1$ tokens, so
#
# **rows of the target = prompt + emitted − 1.**
#
# The missing one is the newest token: it is **pending**, and goes first into the next forward. The draft
# keeps a prefix of the same rows. At $n = \gamma$ its trim would be $-1$: one row to feed later.
#
# The lines of the loop that roll back:

# %%
import inspect
from specdec_core.decode import _rounds

print(*[line for line in inspect.getsource(_rounds).splitlines() if "rollback" in line], sep="\n")

# %% [markdown]
# The first begins a run. The others end every round with one length for both. The draft may have fewer
# rows:

# %%
show_source(ModelDrafter.rollback)

# %% [markdown]
# ### Two kinds of cache
#
# A layer is split into **heads**; each keeps a key and a value of *width* numbers a token. In shapes:
# `[1, heads, rows, width]`. A **preallocated** cache makes room for the longest text once, and remembers
# how many rows are good. Rolling back:

# %%
from specdec_core.cache import GrowingCache, PreallocatedCache

show_source(PreallocatedCache.truncate)

# %% [markdown]
# A **growing** cache holds exactly its rows. Appending copies all of them; rolling back slices each
# layer:

# %%
show_source(GrowingCache.truncate)

# %% [markdown]
# Same weights, both caches, transformers' own forward (`library=True`). Read 5 tokens, then 4, forget 2, read 4: pairs of rows and bytes. The same
# words:

# %%
for growing in (False, True):
    model = CausalLM(pair.target.model, max_length=512, growing=growing, library=True)
    held = []
    for feed in (5, 4, -2, 4):
        model.forward(prompt[:1] * feed) if feed > 0 else model.rollback(model.length + feed)
        held.append((model.length, model.cache_bytes))
    out = speculative_decode(model, pair.drafter, prompt, max_new_tokens=5, randomness=Seeded(27))
    print("growing     " if growing else "preallocated", held, pair.decode(out.tokens))

# %% [markdown]
# One buys its memory once; the other pays by the row, and copies. One roll-back and one forward of five
# tokens, after 400 rows:

# %% tags=["nbval-ignore-output"]
from specdec_core.lab.measure import median_seconds
from specdec_core.lab.memory import cache_bytes

for growing in (False, True):
    model = CausalLM(pair.target.model, max_length=512, growing=growing, library=True)
    model.forward(prompt[:1] * 400, keep=1)
    seconds = median_seconds(lambda m=model: (m.rollback(400), m.forward(prompt)), 5)
    print("growing     " if growing else "preallocated", f"{seconds * 1000:6.1f} ms a round")

# %% [markdown]
# At this size the copy is lost in the noise.
#
# ### The memory bill
#
# One row costs $2 \times \text{layers} \times \text{heads} \times \text{width} \times \text{bytes}$; the 2 is for
# keys and values.

# %%
for side, model in (("target", pair.target), ("draft", pair.drafter.model)):
    row = cache_bytes(model.model.config, 1, model.dtype)
    print(f"{side:6} {row:6} bytes a row, {512 * row / 1e6:5.2f} MB for 512 rows")

# %% [markdown]
# The shape of Llama 3 70B: 80 layers, width 128, 2 bytes a number; 64 heads share 8 keys and values.

# %%
from transformers import LlamaConfig

large = LlamaConfig(num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
                    hidden_size=8192, head_dim=128)
row = cache_bytes(large, 1, torch.float16)
print(f"{row:,} bytes a row, {8192 * row / 1e9:.2f} GB for 8,192 rows")

# %% [markdown]
# ## Implement
#
# **Exercise 1** · medium · 8 minutes. Return the rows of both caches after a round, target first. A round
# may draft nothing.

# %%
def rows_after(target_rows, draft_rows, gamma, accepted):
    ...

# %%
exercises.check_rows_after(rows_after)

# %% [markdown]
# <details><summary>Hint 1</summary>The target adds the newest token's row and one for each kept
# draft.</details>
# <details><summary>Hint 2</summary>After drafting, the draft holds <code>target_rows + gamma</code>,
# whatever it lacked. With <code>gamma = 0</code> it reads nothing.</details>
# <details><summary>Hint 3</summary>It keeps no more than the target keeps.</details>
#
# The solution:

# %% jupyter={"outputs_hidden": true}
from specdec_core.lab.exercises import chapter_05

show_source(chapter_05.rows_after)

# %% [markdown]
# **Exercise 2** · medium · 8 minutes. Append to a preallocated cache. `buffer` is a list of fixed size;
# its first `length` rows are good, the others stale. Write the rows `new` behind the good ones, in
# place. Return the new length. Raise `ValueError` where they do not fit.

# %%
def write_rows(buffer, length, new):
    ...

# %%
exercises.check_write_rows(write_rows)

# %% [markdown]
# <details><summary>Hint 1</summary>The first new row goes to index <code>length</code>.</details>
# <details><summary>Hint 2</summary>Assign to a slice with one place for each new row.</details>
# <details><summary>Hint 3</summary>A slice past the end makes a list grow. Compare with
# <code>len(buffer)</code> first.</details>
#
# The solution, for keys and values (the model has checked that the rows fit):

# %% jupyter={"outputs_hidden": true}
from specdec_core.cache import PreallocatedLayer

show_source(PreallocatedLayer.update)

# %% [markdown]
# **Exercise 3** · hard · 10 minutes. Find the fault. `rounds` holds a triple of numbers for each round:
# tokens emitted, then rows of the target and of the draft after it. There is at most one fault. Return
# `"none"`, `"target too long"`, `"target too short"` or `"draft too long"`.

# %%
def find_fault(prompt_length, rounds):
    ...

# %%
exercises.check_find_fault(find_fault)

# %% [markdown]
# <details><summary>Hint 1</summary>Count the rows the text needs, from
# <code>prompt_length - 1</code>.</details>
# <details><summary>Hint 2</summary>The target holds exactly that many, the draft at most.</details>
# <details><summary>Hint 3</summary>Look at every round: a full accept hides the fault.</details>
#
# The museum's own check counts the wrong rounds:

# %% jupyter={"outputs_hidden": true}
from specdec_core.lab.museum.checks import wrong_rows

show_source(wrong_rows)

# %% [markdown]
# ## Break it
#
# The target is rolled back never (M18), one row too far (M18b), or one too little (M18c). Take a toy of
# two words, 0 and 1, where every word matters: $p$ is $(.8, .2)$ after new words of even sum, $(.3, .7)$
# after an odd one. One word is drafted a round, by $q = (.5, .5)$.
#
# How far is the law of **two** words under M18 from the right one, in total variation (chapter 03)?

# %%
my_two_words = None

# %%
print("       first word   two words")
for id in ("M18", "M18b", "M18c"):
    toy = museum.MISTAKES[id].example
    one, two = (museum.distance(toy, id, words) for words in (1, 2))
    print(f"{id:5}  {one:10.2f}   {two:9.2f}")

# %%
two_words = museum.distance(museum.MISTAKES["M18"].example, "M18", 2)
exercises.compare_prediction(my_two_words, round(two_words, 9), "total variation")

# %% [markdown]
# Word 1 is drafted and rejected in .3 of the runs; its row then shifts p by .5. Before the first word
# nothing had to be rolled back: **a test of the first token sees none of the three.** And the real
# pair? At temperature 0 there is one right text:

# %%
greedy = {"sampling": Sampling(temperature=0), "max_new_tokens": 24}
for id in (None, "M18", "M18b"):
    out = museum.decode(id, pair.target, pair.drafter, prompt, **greedy)
    print(f"{id or 'right':5}  {pair.decode(out.tokens)}")

# %% [markdown]
# No error, and M18b reads well. The rows tell at once:

# %%
for id in (None, "M18", "M18b"):
    out = museum.decode(id, pair.target, pair.drafter, prompt, max_new_tokens=60, randomness=Seeded(5))
    last = out.trace.rounds[-1]
    needed = len(prompt) + len(out.tokens) - 1
    print(f"{id or 'right':5}  needed {needed}, held {last.target_length[1]}, "
          f"acceptance {out.stats.acceptance_rate:.2f}")

# %% [markdown]
# With M18 memory grows by every rejected guess, and acceptance falls: the models read different texts.
# With M18b acceptance hardly moves.
#
# Now the draft's cache: never rolled back (M19), or short by a row (M19b, the target as draft). How
# many of four words are accepted drafts, on average?

# %%
def accepted(result):
    return result.stats.accepted

for id in ("M19", "M19b"):
    toy = museum.MISTAKES[id].example
    print(f"{id:5} law changes by {museum.distance(toy, id):.2f}, accepted drafts "
          f"{museum.mean(toy, None, accepted):.3f} → {museum.mean(toy, id, accepted):.3f}")

# %% [markdown]
# The law stays: chapter 03's rule is exact for any $q$. The draft guesses worse. M19b never fills the
# row that a full accept leaves open. No count of rows shows it. So let **the target draft for itself**:
# then $p = q$, and every draft must pass.

# %%
itself = ModelDrafter(CausalLM(pair.target.model, max_length=512))
out = speculative_decode(pair.target, itself, prompt, max_new_tokens=40, randomness=Seeded(27))
print("rejected by itself:", out.stats.rejected, "of", out.stats.accepted + out.stats.rejected)

# %%
out = museum.decode("M19b", pair.target, itself, prompt, max_new_tokens=40, randomness=Seeded(27))
print("with M19b:         ", out.stats.rejected, "of", out.stats.accepted + out.stats.rejected)

# %% [markdown]
# In float64 none may be rejected; in float32 (chapter 02) a rare rejection is no fault.
#
# ## Try it yourself
#
# Your prompt, gamma, seed and fault, here or in the ledger above. Which faults can you not see in the
# ledger's text?
#
# <details><summary>Answer</summary>At seed 27: M18b, M18c and M19b. The lowest panel shows
# them.</details>

# %%
mine = record_caches(pair, pair.encode("Recipe: soup with"), gamma=6, max_new_tokens=24, seed=4,
                     fault="M18c")
last = mine.rounds[-1]
print(pair.decode([*last.text, *last.round.emitted]))
print("target rows:", len(last.target.after), "draft rows:", len(last.draft.after))

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: the rows of both caches in a few runs of one pair; logits equal to uncached ones within 1e-12 in
#   float64; the exact damage of five faults on toys.
# - Not shown: several texts at once (chapter 12, planned); recurrent models, which cannot go back and are
#   refused; how many samples show a fault (chapter 06).

# %% [markdown]
# ## Five questions to recall
#
# <details><summary>1. Which token is in no cache after a round?</summary>The newest.</details>
# <details><summary>2. γ = 5, two drafts pass. How many rows are dropped?</summary>The target's 3, the
# draft's 2.</details>
# <details><summary>3. When does the draft feed two tokens at once?</summary>In the round after a full
# accept.</details>
# <details><summary>4. Rolling back a preallocated cache: what is copied?</summary>Nothing.</details>
# <details><summary>5. Acceptance fell, the law is right. Which cache do you suspect?</summary>The
# draft's.</details>

# %% [markdown]
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | row | keys and values of one token, in all layers |
# | pending | the newest token: in the text, in no cache |
# | roll back | forget all rows past a length |
# | stale row | of a rejected draft; harmful where it is still read |
#
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192), the algorithm
# - [Ainslie et al. 2023](https://arxiv.org/abs/2305.13245), fewer heads for keys and values
# - [Kwon et al. 2023](https://arxiv.org/abs/2309.06180), caches in pages, as vLLM keeps them
#
# **Next:** chapter 06 asks of a whole decoder what you asked of its caches: is it really the target?

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 3 cold open, 4 predict, 6 run, 8 ledger, 6 caches, 8 exercises, 8 break it.
# - **Where a room gets stuck:** "one row short means broken". Step through a full accept.
# - **Draw:** the text as a strip, and under it two shorter ones.
# - **Five-minute cut:** the first picture, the table of rows, the three greedy texts.
# </details>
