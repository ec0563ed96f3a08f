# %% [markdown]
# # 01 · Measure why decoding is slow
#
# **In this chapter you will have shown** that in plain decoding N tokens take N forwards of the target,
# since each must be known before the next can be computed, while one forward that reads several known
# tokens costs little more than one that reads one, up to a limit that you measure.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 15 minutes | 25 minutes | chapter 00 | offline, on a laptop CPU, in under 40 s |

# %%
from specdec_core import Sampling, autoregressive_decode, load_pair, speculative_decode
from specdec_core.lab import exercises, memory, museum, timing
from specdec_core.lab.notebook import show_source
from specdec_core.widgets import bet, forward_race, line_figure, origin_ribbon

# %% [markdown]
# ## One word, one forward
#
# The target writes alone. Temperature 0: it takes its most likely word.

# %%
pair = load_pair("storyworld", dtype="float64")
target, prompt, greedy = pair.target, pair.encode("Once upon a time"), Sampling(temperature=0)
plain = autoregressive_decode(target, prompt, sampling=greedy, max_new_tokens=48)
short = autoregressive_decode(target, prompt, sampling=greedy, max_new_tokens=12)
origin_ribbon(short.trace, pair.decode)

# %% [markdown]
# Twelve words, twelve brackets: one forward each. Yet the whole prompt went in by a single forward.
#
# **One question to keep in mind:** if a forward can *read* many words, why does it *write* only one?
#
# ## What you will be able to do
#
# 1. Say why plain decoding takes N forwards for N tokens, and what a KV cache spares you.
# 2. Measure forwards over 1, 8 and 256 tokens.
# 3. Estimate how much of a step is reading weights and how much is arithmetic.
# 4. Write a decode loop that reads no token twice.
#
# Three beliefs that end here:
#
# - *"Checking five words takes five times as long as writing one."*
# - *"The cache changes what the model says."*
# - *"Decoding is slow because there is so much arithmetic."*
#
# ## Predict
#
# Take the time of a forward over 1 new token as 1. How long does a forward over 8 take?

# %%
my_ratio = None

# %%
ratio_bet = bet("01-eight", "How long does a forward over 8 tokens take?", 1, 10, "times one token", step=0.1)
ratio_bet

# %% [markdown]
# ## Run: count the forwards
#
# A loop that writes the same words, in the open:

# %%
show_source(timing.greedy_without_cache)

# %%
before = target.forwards
words = timing.greedy_without_cache(target, prompt, 12)
print("same words:", words == short.tokens)
print("forwards:  ", target.forwards - before)

# %% [markdown]
# `forward` takes n tokens and returns n rows. Each row scores every word of the vocabulary as the next
# one. The scores are called *logits*; the most likely word has the highest, at `row.argmax()`. Four words
# are five tokens: an invisible mark, `<s>`, starts every text.

# %%
target.rollback(0)
logits = target.forward(prompt)
print("tokens in:", len(prompt))
print("rows out: ", tuple(logits.shape))
for token, row in zip(prompt, logits):
    word = pair.decode([token]) or "<s>"  # the mark decodes to nothing
    print(f"after {word:>6} comes {pair.decode([int(row.argmax())])!r}")

# %% [markdown]
# Each row saw only the tokens up to its own. The last row gives the first new word. For the row after
# *that* word you must feed it, and to feed it you must know it. So **reading is parallel, writing is
# not**.
#
# ## Run: what the cache spares
#
# The loop above reads the prompt again for every word. It need not. A model is a stack of layers; in
# each, a token leaves a *key* and a *value*, two vectors that later tokens look at. A token sees only
# what came before it, so they never change. Keep them, and the next forward reads only the newest token.
# This store is the **KV cache**: one *cache row* a token (not a row of logits). `rollback(0)` empties it.

# %%
target.rollback(0)
target.forward(prompt)
newest = short.tokens[0]
with_cache = target.forward([newest])[-1]
print("cache rows:", target.length)
target.rollback(0)
without = target.forward(prompt + [newest])[-1]
print("same row:", (with_cache - without).abs().max().item() < 1e-9)

# %% [markdown]
# One token read instead of six. The number of forwards stays N; what each forward reads shrinks:

# %%
for cached in (False, True):
    rows = timing.rows_fed(len(prompt), 48, cached)
    print(f"48 words, {'with the cache' if cached else 'without a cache':15} {rows:5} tokens read")

# %% [markdown]
# The clock runs on `quick`, the same target in float32, the usual format. A story repeated makes a long
# text.

# %%
quick = load_pair("storyworld")
text = (prompt + plain.tokens) * 11
print(len(text), "tokens")

# %% tags=["nbval-ignore-output"]
kept, again = timing.next_token_times(quick.target, text, (1, 64, 128, 256, 384, 512))
line_figure(
    {"without a cache": [(n, 1e3 * s) for n, s in again.items()],
     "with the cache": [(n, 1e3 * s) for n, s in kept.items()]},
    title="Time of the next word", x_title="words so far", y_title="milliseconds",
)

# %% [markdown]
# Without a cache each word costs more than the last; with it, the time grows far less. The price is memory:

# %%
config, dtype = quick.target.model.config, quick.target.dtype
print("one token:", memory.cache_bytes(config, 1, dtype), "bytes")
print("by hand:  ", 2 * config.num_hidden_layers * config.hidden_size * dtype.itemsize, "bytes")

# %% [markdown]
# A key and a value × 24 layers × 96 numbers × 4 bytes.
#
# ## Run: prefill against decode
#
# Reading a prompt is **prefill**: its tokens are known and share one forward. Writing is **decode**: one
# forward a token.

# %% tags=["nbval-ignore-output"]
step = timing.forward_times(quick.target, text, start=255, counts=(1,))[1]
whole = timing.forward_times(quick.target, text, start=0, counts=(256,))[256]
print(f"prefill {256 / whole:6.0f} tokens per second")
print(f"decode  {1 / step:6.0f} tokens per second")

# %% [markdown]
# ## See: the flat part
#
# Between one token and a whole prompt: a forward over n tokens, after 64 in the cache.

# %% tags=["nbval-ignore-output"]
measured = {"the target, on your machine": timing.forward_times(quick.target, text, start=64),
            "the draft, on your machine": timing.forward_times(quick.drafter.model, text, start=64)}
times = measured["the target, on your machine"]
busy = timing.disturbed(times)
print("Your machine was busy: run this cell again." if busy else "No time is out of line.")

# %% [markdown]
# The same words, read twice: one after the other, and together. Click a block, or step n. How much does
# the lower bar grow with one more word?

# %% tags=["nbval-ignore-output"]
forward_race(measured, [pair.decode([token]) for token in short.tokens])

# %% tags=["nbval-ignore-output"]
ratio_bet.settle(my_ratio, round(times[8] / times[1], 2))

# %% [markdown]
# Now up to 256. Equal steps are equal factors: a line as steep as the upper one says "twice the tokens,
# twice the time".

# %% tags=["nbval-ignore-output"]
line_figure(
    {"1 forward over n": [(n, 1e3 * seconds) for n, seconds in times.items()],
     "n forwards over 1": [(n, 1e3 * n * times[1]) for n in times]},
    title="Time to read n tokens", x_title="tokens n", y_title="milliseconds", log=True,
)

# %% [markdown]
# On the left the lower line is nearly **flat**. On the right it climbs like the other. Is yours jagged?
# Run the cell `measured = ...` again.
#
# Is it the same work? Five words, read together and one by one, after the same 64 tokens:

# %%
target.rollback(0)
target.forward(text[:64])
together = target.forward(text[64:69])
print("rows from one forward:", tuple(together.shape))
for i in range(5):
    target.rollback(64 + i)
    alone = target.forward(text[64 + i : 65 + i])[0]
    print(f"row {i} is the same:", (together[i] - alone).abs().max().item() < 1e-9)

# %% [markdown]
# So if somebody *guesses* γ words, the target can **check** them all in one forward over γ + 1 tokens,
# the newest word and the guesses. On the flat part that costs little more than writing one word.
#
# ## Explain
#
# ```text
# write 4 words:  [w0] ─► w1  [w1] ─► w2  [w2] ─► w3  [w3] ─► w4   4 forwards, one by one
# check 3 words:  [w0 g1 g2 g3] ─► rows 0 1 2 3                    1 forward
# ```
#
# A layer multiplies n rows by matrices of weights: shapes $[n, d] \cdot [d, d'] = [n, d']$. The weights
# are read from memory **once**, whatever n is. The arithmetic is two operations, a multiply and an add,
# for each weight and row. With $W$ weights of $b$ bytes, $B$ bytes read a second and $F$ operations a
# second,
#
# $$t(n) \ge \max\left(\frac{bW}{B}, \frac{2Wn}{F}\right).$$
#
# While the left term is larger, n costs nothing: the step is **memory-bound**. Where the right one
# overtakes, time grows with n: **compute-bound**. In code (skim it), one call of `self.model`, whatever
# n is:

# %%
show_source(type(target).forward)

# %% [markdown]
# Count both for the bundled target:

# %%
weights = memory.weight_bytes(config, dtype)
work = timing.flops_per_token(quick.target)
print(f"weights: {memory.count_parameters(config):,} numbers, {weights:,} bytes")
print(f"arithmetic for one token: {work:,} operations")

# %% [markdown]
# And 7 billion weights of 2 bytes, with the two speeds of an H100 SXM's data sheet: computed, not measured.

# %%
read = 7e9 * 2 / 3.35e12  # seconds: bytes of weights / bytes a second
compute = 2 * 7e9 / 989e12  # seconds: operations for one token / operations a second
print(f"read the weights: {1e3 * read:.2f} ms, at best {1 / read:.0f} tokens a second, one by one")
print(f"compute one token: {1e3 * compute:.3f} ms")
print(f"equal at n = {read / compute:.0f} tokens")

# %% [markdown]
# One token leaves that GPU's arithmetic idle more than 99 % of the time. Speculation fills this room,
# unless other texts do: a server that writes 300 at once has 300 rows in each forward. Choose it under
# *whose clock*: 5 tokens take 21.2 ms either way, no gain.

# %%
paper = {"7 billion weights, one text (computed)": 1, "the same, 300 texts at once (computed)": 300}
forward_race(
    {name: {n: max(read, compute * n * texts) for n in range(1, 13)} for name, texts in paper.items()},
    [pair.decode([token]) for token in short.tokens],
)

# %% [markdown]
# **Is your small pair memory-bound too?** Compute it.

# %% tags=["nbval-ignore-output"]
bytes_per_second, flops_per_second = timing.machine_speed()
print(f"a forward over one token  {1e3 * times[1]:6.2f} ms")
print(f"  reading its weights     {1e3 * weights / bytes_per_second:6.2f} ms")
print(f"  its arithmetic          {1e3 * work / flops_per_second:6.2f} ms")

# %% [markdown]
# The two explain a small part of the first. The rest is **overhead**: a forward here calls hundreds
# of operations of torch, and starting one takes longer than its arithmetic. So the curve is flat for another
# reason, but again n tokens share a fixed cost: reading the weights on a big model, starting operations on
# a tiny one.

# %% [markdown]
# ## What speculation does with it
#
# The draft guesses, the target checks on the flat part:

# %%
fast = speculative_decode(target, pair.drafter, prompt, gamma=4, sampling=greedy, max_new_tokens=48)
print("same words:     ", fast.tokens == plain.tokens)
print("target forwards:", fast.stats.target_forwards, "against", plain.stats.target_forwards)
first = len(prompt) - 1  # before the first round: the prompt without its newest token
read_by_target = first + sum(round.gamma + 1 for round in fast.trace.rounds)
print("tokens it read: ", read_by_target, "against", timing.rows_fed(len(prompt), 48, cached=True))

# %% [markdown]
# *More* tokens read, fewer forwards: idle arithmetic is spent to save forwards, which take the time.
#
# ## Implement
#
# **Exercise 1** · easy · 5 minutes. How many tokens does a model read, over all forwards, to write
# `new_tokens` after a prompt of `prompt_length`, with the cache and without?

# %%
def rows_fed(prompt_length, new_tokens, cached):
    ...

# %%
exercises.check_rows_fed(rows_fed)

# %% [markdown]
# <details><summary>Hint 1</summary>Write down what each of three forwards reads after a prompt of 5.</details>
# <details><summary>Hint 2</summary>Without: 5, 6, 7. With: 5, 1, 1. The last new token is never read.</details>
# <details><summary>Hint 3</summary>Without, add up <code>prompt_length + written</code> for
# <code>written in range(new_tokens)</code>.</details>
#
# **Exercise 2** · medium · 10 minutes. Write the greedy loop so that no token is read twice. Begin with
# `model.rollback(0)`, since an earlier run may have left cache rows. Leave `prompt` as it is. Return the
# new tokens alone.

# %%
def greedy_loop(model, prompt, new_tokens):
    ...

# %%
exercises.check_greedy_loop(greedy_loop)

# %% [markdown]
# <details><summary>Hint 1</summary>The first forward reads the prompt, each later one a single
# token.</details>
# <details><summary>Hint 2</summary>Keep a list <code>unread</code>: the prompt, later the newest
# token.</details>
# <details><summary>Hint 3</summary>The next word:
# <code>int(model.forward(unread)[-1].argmax())</code>.</details>
#
# **Exercise 3** · easy · 5 minutes. `times` maps n to seconds. Return the largest n whose forward takes
# **at most** twice the time of 1. Times may be jagged, and in any order.

# %%
def most_tokens(times):
    ...

# %%
exercises.check_most_tokens(most_tokens)

# %% [markdown]
# <details><summary>Hint 1</summary><code>times.items()</code> gives pairs (n, seconds).</details>
# <details><summary>Hint 2</summary>Keep those with <code>seconds &lt;= 2 * times[1]</code>.</details>
# <details><summary>Hint 3</summary>Take the largest n with <code>max</code>.</details>
#
# Then call it on your own `times`. The three solutions, from the package:

# %% jupyter={"outputs_hidden": true}
for solution in (timing.rows_fed, timing.greedy_with_cache, timing.most_tokens):
    show_source(solution)
    print()

# %% [markdown]
# ## Break it
#
# A slip of many first loops: the cache is on, and the whole text is fed each time. How many rows will the
# cache hold after 8 words? The prompt has 5 tokens.

# %%
my_rows = None

# %%
target.rollback(0)
doubled = list(prompt)
for _ in range(8):
    doubled.append(int(target.forward(doubled)[-1].argmax()))
print("it writes:    ", pair.decode(doubled))
print("it should be: ", pair.decode(prompt + plain.tokens[:8]))
exercises.compare_prediction(my_rows, target.length, "cache rows")

# %% [markdown]
# The model saw *Once upon a time Once upon a time, ...* and went on. No error, and fluent text. A
# comparison with uncached rows finds it.
#
# Two mistakes of the museum, in speculative decoding: `"M20"` drops the bonus word, `"M18"` keeps the cache
# rows of rejected guesses. Which one changes the text?

# %%
my_text_changer = None

# %%
same = {}
for mistake in ("M20", "M18"):
    run = museum.decode(
        mistake, target, pair.drafter, prompt, gamma=4, sampling=greedy, max_new_tokens=48
    )
    same[mistake] = run.tokens == plain.tokens
    print(f"{mistake}: same words {same[mistake]}, {run.stats.target_forwards} target forwards")
exercises.compare_choice(my_text_changer, min(same, key=same.get), list(same))

# %% [markdown]
# By its forwards, M18 looks like an unlucky draft. Only the words tell. Chapter 05 is about such rows.
#
# ## Try it yourself
#
# Three depths. Change `counts`, `start` or torch's threads (`import torch; torch.set_num_threads(1)`).
# Where does each line begin to climb?

# %% tags=["nbval-ignore-output"]
models = {"target, 24 layers": quick.target, "strong draft": quick.drafters["strong"].model,
          "draft, 1 layer": quick.drafters["default"].model}
lines = {}
for name, model in models.items():
    taken = timing.forward_times(model, text, start=64, counts=(1, 4, 16, 64, 256))
    lines[name] = [(n, 1e3 * seconds) for n, seconds in taken.items()]
line_figure(
    lines, title="Time of one forward over n tokens", x_title="tokens n", y_title="milliseconds",
    log=True,
)

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: in plain decoding 12 words took 12 forwards. On one short text, cached and uncached rows agree
#   below 1e-9, and a forward over 5 tokens gives the rows of 5 forwards. Times: one machine, the fastest of
#   5 or 7 turns.
# - Computed, not measured: the GPU numbers. They are lower bounds.
# - Not shown: that speculation is faster. Drafting takes time too, and guesses fail: chapter 08.

# %% [markdown]
# ## Five questions to recall
#
# <details><summary>1. Why does plain decoding take N forwards for N tokens?</summary>The row that gives
# a token needs the token before it as input.</details>
# <details><summary>2. What does a KV cache spare?</summary>Reading old tokens again. The number of
# forwards stays.</details>
# <details><summary>3. Why may a key be kept for good?</summary>A token sees only what came before it, so
# later tokens do not change its key.</details>
# <details><summary>4. Why is a forward over 5 tokens hardly dearer than over 1?</summary>Both pay the same
# fixed cost: weights read once, or operations started.</details>
# <details><summary>5. Where does the flat part end?</summary>Where arithmetic, which grows with n,
# overtakes the fixed cost.</details>

# %% [markdown]
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | forward | one pass of a model over n tokens; n rows come out |
# | logits | a score for each word of the vocabulary |
# | KV cache | keys and values of the tokens read so far, one cache row a token |
# | prefill, decode | reading the prompt in one forward; writing, one forward a token |
# | memory-bound | the time goes into reading weights |
# | compute-bound | the time goes into arithmetic, and grows with n |
# | overhead | what it takes to start the work |
#
# - [Shazeer 2019](https://arxiv.org/abs/1911.02150): decoding is bound by memory
# - [Pope et al. 2022](https://arxiv.org/abs/2211.05102): the same accounts at 540 billion weights
# - [Leviathan et al. 2023](https://arxiv.org/abs/2211.17192): who use the idle arithmetic
#
# **Next:** chapter 02, the check itself: which row judges which guess.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 4 cold open and bets, 6 rows and cache, 4 prefill, 8 the flat part, 8 explain, 15
#   exercises, 5 break it.
# - **Where a room gets stuck:** "the cache saves forwards". Count them: N either way. And row i is about
#   what follows token i.
# - **Draw:** a lorry that carries the weights to the chip, with one passenger; then with eight.
# - **Collect:** everybody's ratio for 8 tokens.
# - **Five-minute cut:** the ribbon, the race, the tokens read.
# </details>

