# %% [markdown]
# # 08 · Find out when it pays
#
# **In this chapter you will have shown** that a speed-up can be predicted, because a round brings N tokens and
# takes γc + v + o steps, each measured on its own, while a γ from somebody else's machine fails, and sometimes
# plain decoding wins.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 25 minutes | 30 minutes | chapters 01, 03 and 04 | offline, on a laptop CPU, in under 45 s |

# %%
from functools import partial

import torch

from specdec_core import CausalLM, ModelDrafter, Sampling, Seeded, load_pair, speculative_decode
from specdec_core import autoregressive_decode_batch
from specdec_core.lab import acceptance, exercises, measure, memory, museum, speed_model, sweep
from specdec_core.lab.notebook import show_source
from specdec_core.widgets import bet, line_figure, origin_ribbon, race_track, seismograph

# %% [markdown]
# ## Twice the guesses, no forward saved
#
# One story, with up to 4, 8 and 16 guesses a round. The picture shows 8.

# %%
pair = load_pair("storyworld", dtype="float64")
prompt = pair.encode("Once upon a time")
runs = {gamma: speculative_decode(
    pair.target, pair.drafter, prompt, gamma=gamma, max_new_tokens=24, randomness=Seeded(0),
) for gamma in (4, 8, 16)}
for gamma, run in runs.items():
    print(f"gamma {gamma:2}: {run.stats.target_forwards} target forwards, "
          f"{run.stats.drafted} drafted, {run.stats.accepted} accepted")
origin_ribbon(runs[8].trace, pair.decode)

# %% [markdown]
# Sixteen guesses a round took as many target forwards as eight, and half as many draft steps again.
#
# **One question to keep in mind:** which γ is fastest, and is it faster than no guesses at all?
#
# ## What you will be able to do
#
# 1. Read α from the counts of a run, and tell it from *accepted / drafted*.
# 2. Compute the tokens a round brings.
# 3. Measure c, v and o, predict the speed-up, and check it.
# 4. Choose γ, also where the answer is 0.
#
# Five beliefs that end here:
#
# - *"The acceptance rate is accepted / drafted."* That falls when you draft more.
# - *"Acceptance is one number."* Look word by word.
# - *"Fewer target forwards, less time."* Drafting takes time too.
# - *"γ between 4 and 8 is right."* It follows from what you measure.
# - *"Below 40 % acceptance nothing is gained."* It depends on the draft's price.
#
# ## Predict
#
# Over many stories with γ = 4, about 86 of 100 **judged** guesses are kept, and 70 of 100 **drafted** ones.
# With γ = 16, what part of the drafted is accepted? And which γ will be fastest **on your machine**:
# 1, 2, 4, 8 or 16?

# %%
my_fraction = None
my_best_gamma = None

# %%
fraction_bet = bet("08-fraction", "Accepted / drafted, with gamma 16?", 0, 1, "of the drafts", step=0.01)
fraction_bet

# %% [markdown]
# ## Run: count
#
# One run is luck. So 16 stories are written as one **batch**: they share every forward, each keeps its own
# guesses.

# %%
counts = {}
for gamma in (2, 4, 8, 16):
    counts[gamma] = s = sweep.measure_acceptance(
        pair.target, pair.drafter, [prompt], gamma=gamma, max_new_tokens=64,
        stop_tokens=pair.stop_tokens,
    )
    print(f"gamma {gamma:2}: accepted / judged {s.acceptance_rate:.2f}   "
          f"accepted / drafted {s.accepted_fraction:.2f}   tokens a round {s.block_efficiency:.2f}")
fraction_bet.settle(my_fraction, round(counts[16].accepted_fraction, 2))

# %% [markdown]
# Guesses behind a rejection are never judged, and with γ = 16 most lie there. The first column stays: it estimates
# $\alpha$, the chance that a judged guess is kept (chapter 03: $\sum\min(p, q)$).
#
# For eight texts of each kind, its mean over every position:

# %%
starts = {"story": "Once upon a time", "recipe": "Recipe:", "code": "def plus("}
records = {}
for kind, start in starts.items():
    ids = pair.encode(start)
    written = autoregressive_decode_batch(
        pair.target, [ids] * 8, max_new_tokens=60, stop_tokens=pair.stop_tokens,
        randomness=[Seeded(seed) for seed in range(8)],
    )
    records[kind] = [
        acceptance.record_acceptance(pair.target, pair.drafter, ids + one.tokens, start=len(ids))
        for one in written]
alphas = {kind: sum(sum(r.beta) for r in some) / sum(len(r.beta) for r in some)
          for kind, some in records.items()}
print({kind: round(mean, 2) for kind, mean in alphas.items()})

# %% [markdown]
# ## See: acceptance, word by word
#
# One text of each kind. The bar falls where the draft is surprised. Move **position**, or click a bar.
#
# 1. At which words does it fall in the story? Where in the code?
# 2. Compare two kinds. For which would you draft further ahead?

# %%
seismograph({kind: some[0] for kind, some in records.items()}, pair.decode)

# %% [markdown]
# Names, things and places are choices; what follows is grammar.
#
# *"Do not speculate for the first 10 tokens."* Does acceptance start low? Ten positions at a time:

# %%
for kind, some in records.items():
    print(f"{kind:6}", [round(rate.value, 2) for rate in acceptance.by_position(some, width=10)])

# %% [markdown]
# Not here. Measure your own pair.
#
# ### Tokens a round
#
# If each judged guess is kept with probability $\alpha$, the first $i$ are all kept with $\alpha^i$, so a
# round brings
#
# $$N(\gamma) = 1 + \alpha + \alpha^2 + \dots + \alpha^\gamma = \frac{1 - \alpha^{\gamma+1}}{1 - \alpha}.$$
#
# The 1 is the corrected or bonus token. Accepted / drafted is $(N - 1)/\gamma$. Exactly, for chapter 03's
# $p = (.6, .4)$, $q = (.8, .2)$, where $\alpha = .8$ at every position:

# %%
toy = museum.Example(museum.always(0.6, 0.4), draft=museum.always(0.8, 0.2), gamma=2, tokens=3)
kept = museum.mean(toy, None, lambda result: result.trace.rounds[0].accepted)
print(f"tokens a round, by walking the code: {1 + kept:.4f}")
print(f"by the formula:                      {speed_model.expected_tokens(0.8, 2):.4f}")

# %% [markdown]
# And the stories? By one α, by the acceptance at each **depth** (first guess of a round, second, ...), and as
# counted:

# %%
alpha, depths = counts[16].acceptance_rate, counts[16].per_position
print("gamma  one alpha  by depth  counted")
for gamma, s in counts.items():
    one, by_depth = (speed_model.expected_tokens(alpha, gamma),
                     speed_model.tokens_from_positions(depths[:gamma]))
    print(f"{gamma:5}  {one:9.2f}  {by_depth:8.2f}  {s.block_efficiency:7.2f}")

# %% [markdown]
# Close. At 16 the count falls behind: the 64-token limit cuts last rounds.
#
# The formula takes one α. Suppose half of the rounds have .95 and half .35, and γ = 5:

# %%
mixed = speed_model.mixture_tokens({0.95: 0.5, 0.35: 0.5}, 5)
print(f"tokens a round {mixed:.2f}; from the mean alpha of .65: {speed_model.expected_tokens(0.65, 5):.2f}")

# %% [markdown]
# Contexts that differ give **more** than their mean: long easy stretches pay for the hard words. (Accepted / judged
# leans the other way: more is judged where more is kept.)
#
# ## See: the race track
#
# Both decoders over the same words, on one axis of time. A plain step takes 1, a draft step **c**, a verification
# **v**, the rest of a round **o**. Below: the speed-up for every γ.
#
# 1. Click along the curve. Where is the sweet spot? What do the rounds look like to its right?
# 2. Set c to .6 and α to .5. Which γ is best now?
# 3. Set α to .3 and o to 0. At which c does speculation still pay?

# %%
long = {gamma: speculative_decode(
    pair.target, pair.drafter, prompt, gamma=gamma, max_new_tokens=60, randomness=Seeded(1),
).trace for gamma in (2, 4, 8)}
race_track(alpha=0.85, trace=long, decode=pair.decode)

# %% [markdown]
# <details><summary>Answers to 2 and 3</summary>2: 0, plain decoding: the whole curve lies in the hatched zone. 3:
# below .3; if v = 1 and o = 0, some γ helps where α > c.</details>
#
# ## Explain
#
# ```text
# plain        [ step ][ step ][ step ]                     1 token each
# speculative  [d][d][d][d][ verify ][o]                    N tokens
#               γ times c      v      o
# ```
#
# Per token, one divided by the other:
#
# $$S = \frac{N(\gamma)}{\gamma c + v(\gamma) + o}$$

# %%
show_source(speed_model.gain)

# %% [markdown]
# | in plain steps | what is timed |
# |---|---|
# | c | one draft step: forward, q, draw |
# | v(γ) | a target forward over γ + 1 tokens, p, verdict |
# | o | the loop: rounds that draft nothing, less their verification |
#
# None is taken from a speed-up. On your machine, in float32:

# %% tags=["nbval-ignore-output"]
quick = load_pair("storyworld")
gammas = (1, 2, 4, 8, 16)
half = records["story"][0].tokens[:45]
costs = measure.measure_costs(quick.target, quick.drafter, half, gammas, repeats=25)
o = measure.measure_overhead(quick.target, half, costs.step)
print(f"a plain step takes {1e3 * costs.step:.2f} ms;  c = {costs.c:.3f}, o = {o:.3f}")
print("v:", {gamma: round(v, 2) for gamma, v in costs.v.items()})

# %% [markdown]
# On a CPU v may jump, even down: so it is measured at each γ. Now predict, from the depths above:

# %% tags=["nbval-ignore-output"]
predicted = sweep.predict(depths, costs, o)
for gamma, (tokens, gain) in predicted.items():
    print(f"gamma {gamma:2}: {tokens:.2f} tokens in "
          f"{gamma * costs.c + costs.v[gamma] + o:.2f} steps: {gain:.2f}x")

# %% [markdown]
# Then run, with seeds the prediction has not seen. All take turns; the faster of two counts:

# %% tags=["nbval-ignore-output"]
unseen = [(prompt, seed) for seed in (200, 201)]
taken = sweep.timed_runs(quick.target, quick.drafter, unseen, gammas, turns=2, max_new_tokens=70)
pace = {gamma: run.seconds / run.tokens for gamma, run in taken.items()}
measured = {gamma: pace[0] / pace[gamma] for gamma in gammas}
fastest = max(measured, key=measured.get)
for gamma in gammas:
    (tokens, gain), found = predicted[gamma], measured[gamma]
    print(f"gamma {gamma:2}: predicted {gain:.2f}x, measured {found:.2f}x, off by {gain / found - 1:+.0%} "
          f"(tokens a round {tokens:.2f}, {taken[gamma].tokens / taken[gamma].rounds:.2f})")
exercises.compare_prediction(my_best_gamma, fastest, "guesses a round were fastest")

# %% tags=["nbval-ignore-output"]
line_figure(
    {"predicted": [(g, s) for g, (_, s) in predicted.items()], "measured": list(measured.items())},
    title="Speed-up over plain decoding", x_title="gamma", y_title="times as fast",
)

# %% [markdown]
# Two stories are few, and a busy machine moves both. On a quiet one they agree within 10 %.
#
# The kinds of text, at the same costs:

# %% tags=["nbval-ignore-output"]
for kind, mean in alphas.items():
    gamma, gain = speed_model.best_gamma(mean, costs, o)
    print(f"{kind:6} alpha {mean:.2f}: best gamma {gamma:2}, predicted {gain:.2f}x")

# %% [markdown]
# ### Advice, put to the test
#
# With v = 1 and o = 0, drafting one more stops paying at the smallest γ with
# $\alpha^{\gamma+1}(1 + c\gamma) \le c\,N(\gamma)$. The best speed-up, and its γ:

# %%
prices = (0.05, 0.1, 0.2, 0.5, 0.6)
print("alpha " + "".join(f"     c = {c:<4}" for c in prices))
for a in (0.3, 0.5, 0.6, 0.8, 0.9):
    best = {c: speed_model.closed_best_gamma(a, c) for c in prices}
    print(f"{a:5} " + "".join(f" {speed_model.speedup(a, g, c):5.2f}x at {g:2}" for c, g in best.items()))

# %% [markdown]
# - *"γ between 4 and 8"*: here anything from 0 to 13.
# - *"Below 40 % acceptance there is no gain"*: at α = .3 a cheap draft gains. The condition is **α > c**.
# - *"The draft should be 1/10 to 1/20 of the target; near half it is slow"*: what counts is c. Measured below.
# - *"Put the draft on another device to save memory"*: true, and rounds then wait for transfers (not measured).
# - *"Speed-up = γT / (T_draft + T_verify)"*, $T$ a plain step: it lacks α, so it always asks for more guesses, and the
#   bonus token, which shows at γ = 2. At c = .1, α = .85:

# %%
for gamma in (2, 4, 8):
    print(f"gamma {gamma}: the formula says {gamma / (gamma * 0.1 + 1):.2f}x, "
          f"the model {speed_model.speedup(0.85, gamma, 0.1):.2f}x")

# %% [markdown]
# ### A published table
#
# A target of 7 billion weights, a draft of half a billion, as reported. Can **one** α, one c and one o explain all ten
# numbers? α is fitted to accepted / drafted, c and o to the speed-ups, v = 1. Beside it, your machine:

# %%
fit = speed_model.explain_table()
print(f"alpha {fit.alpha:.2f}, c {fit.c:.2f}, o {fit.o:.2f}")
for row in speed_model.PUBLISHED:
    part = speed_model.accepted_fraction(fit.alpha, row.gamma)
    gain = speed_model.speedup(fit.alpha, row.gamma, fit.c, 1.0, fit.o)
    print(f"gamma {row.gamma:2}: accepted / drafted {row.fraction:.2f} (model {part:.2f})   "
          f"speed-up {row.speedup} (model {gain:.2f})   {row.milliseconds} ms a token, "
          f"plain {row.milliseconds * row.speedup:.0f}")
print(f"worst error {fit.worst():.0%}; without o {speed_model.explain_table(overhead=False).worst():.0%}")

# %% tags=["nbval-ignore-output"]
print("           alpha     c     o   best gamma   speed-up")
print(f"published   {fit.alpha:.2f}  {fit.c:.2f}  {fit.o:.2f}            6        2.5")
print(f"yours       {alpha:.2f}  {costs.c:.2f}  {o:.2f}  {fastest:11}  {measured[fastest]:9.2f}")

# %% [markdown]
# Ten numbers from three, within 9 %, and one plain step of 45 ms. "Acceptance fell from 78 to 50 %" was one α all
# along.
#
# ### Where it is slower
#
# The best possible draft is the target itself. Then all drafts, on your machine (*weak* is a table without weights; α is
# read from tokens a round):

# %%
itself = ModelDrafter(CausalLM(pair.target.model))
mirror = speculative_decode(
    pair.target, itself, prompt, gamma=4, max_new_tokens=50, randomness=Seeded(1))
print(f"accepted {mirror.stats.acceptance_rate:.0%}, {mirror.stats.block_efficiency:.0f} tokens a round")

# %% tags=["nbval-ignore-output"]
drafts = {name: quick.drafters[name] for name in ("weak", "default", "strong")}
drafts["itself"] = ModelDrafter(CausalLM(quick.target.model))
whole = memory.count_parameters(quick.target.model.config)
for name, drafter in drafts.items():
    network = measure.draft_network(drafter)
    size = memory.count_parameters(network.model.config) / whole if network else 0
    c = measure.measure_costs(quick.target, drafter, half, (4,)).c
    run = sweep.timed_runs(quick.target, drafter, unseen[:1], (2, 4), turns=2, max_new_tokens=60)
    a = speed_model.alpha_of_fraction((run[4].tokens / run[4].rounds - 1) / 4, 4)
    print(f"{name:8} size {size:.2f}, c {c:.2f}, alpha {a:.2f}: "
          f"{run[2].pace / run[0].pace:.2f}x at gamma 2, {run[4].pace / run[0].pace:.2f}x at gamma 4")

# %% [markdown]
# Here *weak* keeps about 4 of 10 and gains at γ = 2; *default* has 1 % of the weights and takes 7 % of a step. *itself*
# keeps every guess and is slower: $5 / (4 + v + o) < 1$. **Neither size nor acceptance alone says what you gain.**
#
# ### Many texts at once
#
# Eight texts share each forward, which then has eight times the rows:

# %% tags=["nbval-ignore-output"]
both = sweep.batch_pace(quick.target, quick.drafter, prompt, (1, 8), repeats=2)
for batch, (plain, fast) in both.items():
    print(f"{batch} at once: plain {plain:4.0f} tokens a second, speculative {fast:4.0f}: {fast / plain:.2f}x")

times = measure.batch_times(quick.target, prompt * 8, (1, 8, 32), (1, 5))
for batch in (1, 8, 32):
    print(f"{batch:2} texts: a forward over 5 tokens of each text / over 1: "
          f"{times[batch, 5] / times[batch, 1]:.2f}")

# %% [markdown]
# This is v(4) without p and verdict. It grows with the batch, from 1 on an idle machine towards γ + 1 on a full one.
# N stays, so the gain melts. Busy servers lower γ, or stop speculating.
#
# ### The memory bill
#
# Two models, two caches, and what lives while γ + 1 rows are verified (**activations**): predicted from the
# configurations, and allocated.

# %%
room = load_pair("storyworld", max_length=512)
for line in memory.memory_bill(room.target, room.drafter, gamma=4):
    print(f"{line.what:32} {line.predicted:>10,} bytes predicted, {line.allocated:>10,} allocated")

# %% [markdown]
# Out of memory? Look at the caches first: they grow with the longest text you allow.
#
# *"Switch gradient checkpointing on"*: that keeps fewer activations for a backward pass. Peak memory, without and with:

# %%
network, text = room.target.model, torch.tensor([prompt * 20])

def step(training):
    with torch.inference_mode(not training), torch.set_grad_enabled(training):
        loss = network.train(training)(text, labels=text, use_cache=False).loss
        if training:
            loss.backward()
            network.zero_grad()

def peaks():
    return [memory.peak_bytes(partial(step, training)) / 1e6 for training in (True, False)]

without = peaks()
# "activation checkpointing" is its newer name
getattr(network, "activation_checkpointing_enable", network.gradient_checkpointing_enable)()

for what, off, on in zip(("training step", "inference"), without, peaks()):
    print(f"{what:14} {off:5.1f} MB → {on:5.1f} MB")

# %% [markdown]
# Inference has no backward pass: nothing gained.
#
# ## Implement
#
# **Exercise 1** · easy · 5 minutes. Return $N$, the mean number of tokens a round emits. $\alpha$ may be 1.

# %%
def tokens_per_round(alpha, gamma):
    ...

# %%
exercises.check_expected_tokens(tokens_per_round)

# %% [markdown]
# <details><summary>Hint 1</summary>The first i drafts are all kept with probability
# <code>alpha**i</code>.</details>
# <details><summary>Hint 2</summary>The token after them always comes: that is i = 0.</details>
# <details><summary>Hint 3</summary>Sum <code>alpha**i</code> for <code>i in range(gamma + 1)</code>.</details>
#
# **Exercise 2** · medium · 8 minutes. A report gives only accepted / drafted, and γ. Return α, to two digits
# or better.

# %%
def alpha_from(fraction, gamma):
    ...

# %%
exercises.check_alpha_of_fraction(alpha_from)

# %% [markdown]
# <details><summary>Hint 1</summary>Accepted / drafted is (N − 1)/γ, and it rises with α.</details>
# <details><summary>Hint 2</summary>Try α = .5: is the fraction too small? Then α lies above.</details>
# <details><summary>Hint 3</summary>Keep <code>low</code> and <code>high</code>, and halve 20 times.</details>
#
# **Exercise 3** · medium · 8 minutes. `v` maps each measured γ to its cost. Return the γ with the largest
# speed-up, or 0 where none is faster than plain decoding.

# %%
def fastest_gamma(alpha, c, v, o):
    ...

# %%
exercises.check_best_gamma(fastest_gamma)

# %% [markdown]
# <details><summary>Hint 1</summary>Plain decoding has speed-up 1; begin with that.</details>
# <details><summary>Hint 2</summary>Try every γ in <code>v</code>: there may be several peaks.</details>
# <details><summary>Hint 3</summary><code>tokens_per_round(alpha, gamma) / (gamma * c + cost + o)</code> for
# <code>gamma, cost in v.items()</code>.</details>
#
# The solutions, from the package:

# %% jupyter={"outputs_hidden": true}
for solution in ("expected_tokens", "alpha_of_fraction", "best_gamma"):
    show_source(getattr(speed_model, solution))
    print()

# %% [markdown]
# ## Break it
#
# The draft samples at temperature .5. `"M20"` forgets the bonus token; some say the text then loses coherence. `"M12"`
# records q at temperature 1, so the ratio uses a q that was not sampled from. Which **looks faster** than the right
# decoder?

# %%
my_faster = None

# %%
shaped = {"gamma": 4, "draft_sampling": Sampling(0.5), "max_new_tokens": 60}
brought = {}
for id in (None, "M20", "M12"):
    some = [museum.decode(id, pair.target, pair.drafter, prompt, randomness=Seeded(seed), **shaped)
            for seed in range(5)]
    brought[id] = sum(len(r.tokens) for r in some) / sum(r.stats.rounds for r in some)
    print(f"{id or 'right':5}  tokens a round {brought[id]:.2f}")
faster = [id for id in ("M20", "M12") if brought[id] > brought[None]]
exercises.compare_choice(my_faster, " and ".join(faster) or "neither", ("M20", "M12"))

# %% [markdown]
# A benchmark would prefer M12. Now each law, exactly, on its toy (chapter 06):

# %%
for id in ("M20", "M12"):
    example = museum.MISTAKES[id].example
    tokens = [museum.mean(example, which, lambda r: len(r.trace.rounds[0].emitted))
              for which in (None, id)]
    print(f"{id}: law off by {museum.distance(example, id):.3f} in total variation, "
          f"tokens a round {tokens[0]:.3f} → {tokens[1]:.3f}")

# %% [markdown]
# M20 writes by the right law and loses a token in each full round: **speed, never coherence**. M12 accepts more
# because it writes by another law. **Check the law of a faster decoder first.**
#
# ## Try it yourself
#
# Change the draft, the prompt or the temperature.

# %% tags=["nbval-ignore-output"]
my_draft, my_prompt, my_sampling = "strong", "def plus(", Sampling(temperature=0.7)
mine, ids = quick.drafters[my_draft], quick.encode(my_prompt)
found = sweep.measure_acceptance(
    quick.target, mine, [ids], gamma=16, sampling=my_sampling, max_new_tokens=60)
price = measure.measure_costs(quick.target, mine, ids, gammas, my_sampling, repeats=7)
gain, gamma = max((gain, gamma) for gamma, (_, gain) in sweep.predict(
    found.per_position, price, o).items())
print(f"alpha {found.acceptance_rate:.2f}, c {price.c:.2f}: predicted {gain:.2f}x at gamma {gamma}")

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: accepted / drafted falls with γ while α stays (16 stories each, float64). The published table follows from
#   three numbers, within 9 %. A perfect draft at c = 1 gains nothing.
# - Measured on one machine: c, v, o; two stories for each γ, two turns; batches 1 and 8.
# - Not shown: a GPU (v flatter, o heavier); long texts; drafts on another device.
#
# ## Five questions to recall
#
# <details><summary>1. Why does accepted / drafted fall with γ?</summary>Guesses behind a rejection count as drafted
# and are never judged.</details>
# <details><summary>2. What is S, in words?</summary>Tokens a round brings, divided by the plain steps it takes.</details>
# <details><summary>3. When is γ = 0 best?</summary>When no γ brings more tokens than it takes steps: with v = 1 and
# o = 0, when α ≤ c.</details>
# <details><summary>4. Why does the gain melt in large batches?</summary>The machine is full: v(γ) approaches γ + 1.</details>
# <details><summary>5. A decoder is faster than its peers. What do you check?</summary>Its law: M12 accepts more
# because it is wrong.</details>
#
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | accepted fraction | accepted / drafted; falls with γ |
# | draft cost, c | time of a draft step / time of a plain step |
# | verification cost, v | time of verifying γ drafts / time of a plain step |
# | round overhead, o | whatever else a round takes / time of a plain step |
# | speed-up | plain time / speculative time, for the same number of tokens |
# | batch | texts that share every forward |
# | activations | what lives while a forward runs, and no longer |
# | memory bill | weights and caches of both models, and the activations |
#
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192), section 3: N, S and the best γ
# - [Chen et al. 2023](https://arxiv.org/abs/2302.01318): speed-ups at 70 billion weights
#
# **Next:** chapter 09 asks where better and cheaper drafts come from.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 5 cold open, 8 counts and bars, 8 race track, 12 measure and predict, 7 table, 15 exercises, 5 break
#   it.
# - **Where a room gets stuck:** "acceptance fell, so the draft got worse". Ask how many guesses were judged.
# - **Collect:** everybody's c, v(4), o and best γ.
# - **Five-minute cut:** the columns of the counts, the race at c = .6, the perfect draft.
# </details>
