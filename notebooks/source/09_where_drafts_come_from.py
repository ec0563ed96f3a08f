# %% [markdown]
# # 09 · Choose where drafts come from
#
# **In this chapter you will have shown** that a draft may come from anywhere, because verification asks only for the q
# it was drawn from, while a draft that does not fit gains nothing, and a rule that asks for less changes the text.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 25 minutes | 30 minutes | chapters 03, 06 and 08 | offline, on a laptop CPU, in under 90 s |

# %%
import torch

from specdec_core import AcceptanceMonitor, AdaptiveGamma, CausalLM, Draft, LookupDrafter, LookupElse
from specdec_core import MedusaHeads, ModelDrafter, Sampling, Seeded, TableDrafter, TableModel, WarmUp
from specdec_core import autoregressive_decode_batch, exact_law, largest_difference, load_pair, marginal
from specdec_core import speculative_decode, total_variation
from specdec_core.lab import acceptance, adaptive, drafter_table, exercises, live_distillation, museum
from specdec_core.lab.exercises import chapter_09
from specdec_core.lab.notebook import show_source
from specdec_core.pairs import storyworld_card
from specdec_core.widgets import bet, line_figure, origin_ribbon, seismograph

# %% [markdown]
# ## Eight guessers, one text
#
# One target, greedy, with each of eight drafts:

# %%
pair = load_pair("storyworld", dtype="float64")
prompt = pair.encode("Once upon a time")
runs = {name: speculative_decode(
    pair.target, drafter, prompt, gamma=4, sampling=Sampling(0), max_new_tokens=24,
) for name, drafter in pair.drafters.items()}
for name, run in runs.items():
    print(f"{name:10} {run.stats.target_forwards:2} target forwards for {run.stats.emitted} tokens")
print("different texts:", len({tuple(run.tokens) for run in runs.values()}))
origin_ribbon(runs["medusa"].trace, pair.decode)

# %% [markdown]
# One text. The picture shows *medusa*, which has no draft model at all.
#
# **One question to keep in mind:** which of them would you take, and for which text?
#
# ## What you will be able to do
#
# 1. Say where a draft can come from, and what it takes.
# 2. Distil one from the target's own texts.
# 3. Copy, stop when unsure, let γ follow the acceptance, and keep the law.
# 4. Read acceptance as a sign of health.
#
# Five beliefs that end here:
#
# - *"A draft is a small model of the same family."* It may be a look-up, or part of the target.
# - *"Same family 70 %, another 40 %."* Measure each draft.
# - *"A good draft fits any target."* It fits the one that taught it.
# - *"An unsure guess is better dropped."* Then the law is off.
# - *"Keeping likely tokens is exact enough."* Count.
#
# ## Predict
#
# A draft with a fresh layer, α near 0, learns from the target for ten seconds. What is α then? And which of the eight
# will be **fastest**?

# %%
my_alpha = None
my_fastest = None

# %%
alpha_bet = bet("09-alpha", "Acceptance rate after ten seconds of training?", 0, 1, "accepted / judged", step=0.01)
alpha_bet

# %% [markdown]
# ## Run: where each comes from
#
# | draft | what it is | what was trained |
# |---|---|---|
# | default, strong | small models of the target's family | one layer, three layers, on text like the target's |
# | distilled | a small model | one layer, on the target's texts and its p |
# | mismatched | like default | on recipes only |
# | weak | counts of word pairs | no network |
# | lookup | what followed the last words when they stood there before | nothing |
# | exit | the target's first layers and its head (**early exit**) | one vector of 96 numbers |
# | medusa | four small **heads** on the target's last hidden row | the heads |
#
# A **hidden row** is what a layer leaves for a token, before logits are made of it. *exit* and *medusa* are the
# target drafting for itself. What each took:

# %%
card = storyworld_card()
print("layers of the target in exit:", pair.drafters["exit"].model.layers)
for name in pair.drafters:
    took = card.get(name, {})
    source = "the target" if "teacher_tokens" in took else "the grammar" if took else "nobody"
    print(f"{name:10} {took.get('parameters', '-'):>7} weights, trained {took.get('training_seconds', '-'):>5} s "
          f"on texts of {source}")
print("writing those texts, once for the three:", card["distilled"]["teacher_seconds"], "s")
print("exit on stories:", card["exit"]["acceptance"]["story"], "- with the target's own norm, untrained:",
      card["exit"]["acceptance_with_the_target_norm"]["story"])

# %% [markdown]
# This target's first layer knows nearly everything; a deep target's does not.
#
# All eight. *copy* is a listing that stands twice in the prompt and begins again:

# %%
listing = pair.encode("""def plus(x, y):
    value = x + y
    if value > 7:
        return y
    return value
""")
starts = {"story": prompt, "recipe": pair.encode("Recipe:"), "code": pair.encode("def plus("),
          "copy": listing * 2 + listing[:5]}

# %%
counted = drafter_table.count_drafters(
    pair.target, pair.drafters, starts, gamma=4, max_new_tokens=40)
print("accepted / judged" + "".join(f"{kind:>8}" for kind in starts))
for name, kinds in counted.items():
    rates = [drafter_table.pooled(some).acceptance_rate for some in kinds.values()]
    print(f"{name:17}" + "".join(f"{rate:8.2f}" for rate in rates))

# %% [markdown]
# One family, and anything from 0 to 1. *mismatched* is as good a model as *default*, on recipes.
#
# By **depth**, the first guess of a round, the second, ...; for *medusa*, by head:

# %%
for name, kinds in counted.items():
    stats = [drafter_table.pooled(some) for some in kinds.values()]
    print(f"{name:10}", *(f"{rate.value:5.2f}" for rate in acceptance.by_depth(stats)))

# %% [markdown]
# A guess is judged only if all before it were kept, so depth sees the easy stretches. Judged everywhere, over 100
# stories, the heads fall:

# %%
print("medusa, by head:", card["medusa"]["acceptance_by_head"]["story"])

# %% [markdown]
# Head 3 does not see the two guesses before its own.
#
# ## See: eight seismographs
#
# Chapter 08's bars, for one story.
#
# 1. Put *lookup* above *distilled*. Where does it draft at all?
# 2. Which words surprise *medusa* and not *exit*?

# %%
story = [*prompt, *counted["default"]["story"][0].tokens]
seismograph({
    name: acceptance.record_acceptance(pair.target, drafter, story, start=len(prompt))
    for name, drafter in pair.drafters.items()}, pair.decode)

# %% [markdown]
# ## Explain
#
# ```text
# lookup     text so far  → the same last words, earlier → what followed them
# model      text so far  → small network → q, draw, again
# exit       text so far  → target's first layers → target's head → q, draw, again
# medusa     hidden row of the last verification → 4 heads at once → 4 q's, draw each
# ```
#
# Chapter 03's rule takes them all: keep $x$ with $\min(1, p(x)/q(x))$. A copied token has $q(x) = 1$, so it is kept
# with $p(x)$.

# %%
show_source(MedusaHeads.hidden)

# %% [markdown]
# Shapes: a row [96] becomes [4, 96], and the target's head makes [4, 525] logits of it.
#
# ### Distil a draft, live
#
# **Distillation**: the target (*teacher*) writes, and a small model (*student*) learns its whole p at each word. It
# begins with the target's embedding and head; its layer is fresh. What it should minimise, chapter 03 told:
#
# $$1 - \alpha = 1 - \sum_x \min(p, q) = \tfrac12 \sum_x |p - q|$$
#
# Its slope vanishes where q is near 0, so training begins with KL, another distance.

# %%
show_source(live_distillation.kl_loss)

# %% tags=["nbval-ignore-output"]
quick = load_pair("storyworld")
texts = live_distillation.teacher_texts(
    quick.target, quick.drafter, prompt[:1], texts=64, length=96, seed=9)
student = ModelDrafter(CausalLM(live_distillation.fresh_student(quick.target, seed=0)))
curve = []
for step in live_distillation.distil(
        quick.target, student, texts, [starts[kind] for kind in ("story", "recipe", "code")], steps=80):
    print(f"step {step.step:3}: loss {step.loss:5.2f} nats, acceptance {step.acceptance:.2f}")
    curve.append((step.step, step.acceptance))
alpha_bet.settle(my_alpha, round(curve[-1][1], 2))

# %% tags=["nbval-ignore-output"]
line_figure({"student": curve}, title="Acceptance while the student learns",
            x_title="training steps", y_title="accepted / judged")

# %% [markdown]
# Seconds of training on 64 texts, and it has all but caught up with *default*. *distilled* had thousands.
#
# ### On a target it was not made for
#
# Now *strong* is the target. Each target writes eight stories:

# %%
names = ("distilled", "default", "mismatched")
for whose, target in {"its own": pair.target, "strong": pair.drafters["strong"].model}.items():
    written = autoregressive_decode_batch(
        target, [prompt] * 8, max_new_tokens=40, randomness=[Seeded(seed) for seed in range(8)])
    kept = {name: sum(acceptance.record_acceptance(
        target, pair.drafters[name], prompt + one.tokens, start=len(prompt)).mean
        for one in written) / 8 for name in names}
    print(f"target {whose:8} rejected of 100:", {name: round(100 * (1 - kept[name]), 1) for name in names})

# %% [markdown]
# *default* fits both about as well. *distilled* learnt one target's habits: on the other it is rejected several times
# as often, though both speak one language.
#
# ### Another tokenizer
#
# Same family, same size, and two words have changed places:

# %%
import json
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from specdec_core.tokenizer_match import check_same_tokens
parts = json.loads(pair.tokenizer.backend_tokenizer.to_str())
words = parts["model"]["vocab"]
words["dog"], words["owl"] = words["owl"], words["dog"]
swapped = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer.from_str(json.dumps(parts)), **pair.tokenizer.special_tokens_map)
try:
    check_same_tokens(pair.tokenizer, swapped)
except ValueError as error:
    print(error)

# %% [markdown]
# `load_pair(target=..., draft=...)` asks first, and refuses.
#
# ### Does any of it change the law?
#
# A **confidence stop** ends a draft after the first token with a small q. **Warm-up** drafts nothing at first.
# `LookupElse` copies where the text repeats, else asks another draft. **Adaptive γ** follows the acceptance. By
# enumeration:

# %%
p, q = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]
toy, chain = TableModel(lambda text: p, 3), TableDrafter(lambda text: q, 3)

def law(drafter, gamma=2):
    return exact_law(lambda coins: speculative_decode(
        toy, drafter, [0, 1], gamma=gamma, max_new_tokens=3, randomness=coins).tokens)

# %%
right = {(a, b, c): p[a] * p[b] * p[c] for a in range(3) for b in range(3) for c in range(3)}
ways = {"confidence stop": (ModelDrafter(chain.model, stop_below=0.25), 2),
        "look-up": (LookupDrafter(3), 2), "look-up, else": (LookupElse(LookupDrafter(3), chain), 2),
        "adaptive gamma": (chain, AdaptiveGamma({1: 1.2, 2: 1.4})), "warm-up": (chain, WarmUp(2, 1))}
for name, (drafter, gamma) in ways.items():
    print(f"{name:16} off by less than 1e-12:", largest_difference(law(drafter, gamma), right) < 1e-12)

# %% [markdown]
# The stop **keeps** the unsure token. Drop it, since it would "be rejected anyway":

# %%
class Dropping(ModelDrafter):
    def propose(self, *asked):
        draft = super().propose(*asked)
        unsure = len(draft.tokens) and draft.probs[-1, draft.tokens[-1]] < self.stop_below
        return Draft(draft.tokens[:-1], draft.probs[:-1]) if unsure else draft

first = marginal(law(Dropping(chain.model, stop_below=0.25)), 1)
print({token: round(mass, 2) for (token,), mass in first.items()}, "instead of", p)
print(f"total variation {total_variation(first, marginal(right, 1)):.2f}")

# %% [markdown]
# Token 2 is now never drafted, yet q still says .2: a q that was not drawn from (chapter 07).
#
# ### Medusa's own rule
#
# Medusa verifies by **typical acceptance** (section 2.3.1 of its paper): keep $x$ where
# $p(x) > \min(\varepsilon, \delta e^{-H(p)})$, $H$ the entropy of p, with ε = .09, δ = .3 in its code; else take
# the likeliest. One position, chapter 03's numbers:

# %%
def typical(coins, p, q, epsilon=0.09, delta=0.3):
    drafted = int(coins.categorical(q))
    entropy = -(p * p.log()).sum()
    keep = p[drafted] > min(epsilon, delta * (-entropy).exp())
    return [drafted if keep else int(p.argmax())]

print(exact_law(lambda coins: typical(coins, torch.tensor([0.6, 0.4]), torch.tensor([0.8, 0.2]))))

# %% [markdown]
# This is **q**: both tokens pass, so the draft writes. Here the heads are judged by `verify`, exactly.
#
# ### Copy, or else a model
#
# *weak* beside a look-up needs no network either. Tokens a round, γ = 4:

# %%
either = LookupElse(LookupDrafter(pair.target.vocab_size, longest=4, shortest=2), pair.drafters["weak"])
both = {kind: starts[kind] for kind in ("story", "copy")}
composite = drafter_table.count_drafters(pair.target, {"look-up, else": either}, both, max_new_tokens=40)
for name, kinds in {**{n: counted[n] for n in ("lookup", "weak")}, **composite}.items():
    print(f"{name:14}", {kind: round(drafter_table.pooled(kinds[kind]).block_efficiency, 2) for kind in both})

# %% [markdown]
# A look-up brings something where text repeats, and in a story next to nothing. Here its match must be longer: a chance
# match takes a better guess's place.
#
# ### γ that follows the acceptance
#
# `AdaptiveGamma` is chapter 08's rule with the acceptance seen lately. γ round by round:

# %%
schedule = AdaptiveGamma({1: 1.2, 2: 1.3, 4: 1.5, 8: 2.0})
for name in ("distilled", "default", "mismatched"):
    run = speculative_decode(pair.target, pair.drafters[name], prompt, gamma=schedule,
                             max_new_tokens=40, randomness=Seeded(0))
    print(f"{name:10}", [round.gamma for round in run.trace.rounds])

# %% [markdown]
# With *mismatched* it gives up, and tries again after 16 rounds. Against every fixed γ, at your machine's costs; *hot*
# is a story at temperature 2, where drafting barely pays:

# %% tags=["nbval-ignore-output"]
kinds = ("story", "recipe", "code")
costs = adaptive.measure_round_costs(quick.target, quick.drafter, story, most=8, repeats=9)
mixed = {**{kind: [starts[kind]] for kind in kinds}, "hot": [prompt]}
compared = adaptive.against_fixed(adaptive.compare_schedules(
    quick, quick.drafter, mixed, (1, 2, 4, 8), costs, samplings={"hot": Sampling(2.0)},
    texts=8, runs=0, max_new_tokens=80))
for kind, (gamma, to_best, to_single) in compared.items():
    print(f"{kind:7} best gamma {gamma}: adaptive is {to_best:.2f} of that, {to_single:.2f} of the best single gamma")

# %% [markdown]
# Three kinds draft well: one γ suits them, and adapting gains nothing. What it gains over all comes from *hot*. And *"no
# speculation for the first 10 tokens"*:

# %%
for tokens in (0, 10):
    runs = [speculative_decode(pair.target, pair.drafter, start, gamma=WarmUp(4, tokens),
                               max_new_tokens=40, randomness=Seeded(1)) for start in starts.values()]
    print(f"warm-up {tokens:2}: {sum(run.stats.target_forwards for run in runs)} target forwards")

# %% [markdown]
# ### Acceptance as a sign of health
#
# The text stays right whatever the draft does: a wrong draft shows only here. A **monitor** weighs each verdict and
# raises an alarm when a fall of .1 is certain enough. After three texts *mismatched* is loaded:

# %%
monitor = AcceptanceMonitor(baseline=0.8)
for name in ("default", "mismatched"):
    judged = 0
    for round in (round for kind in kinds for run in counted[name][kind] for round in run.rounds):
        judged += sum(verdict in ("accepted", "rejected") for verdict in round.verdicts)
        monitor.add(round)
        if monitor.alarm:
            break
    print(f"{name}: {judged} judged, {monitor.alarm or 'no alarm'}")

# %% [markdown]
# ### All eight, priced and timed
#
# On your machine: c, the memory each takes beyond the target's, and the speed-up at γ = 4, predicted
# from the counts above, measured with other seeds:

# %% tags=["nbval-ignore-output"]
rows = drafter_table.measure_drafters(quick.target, quick.drafters, counted)
drafter_table.measured_table(rows)

# %% tags=["nbval-ignore-output"]
gains = {row.name: drafter_table.mean_gain(row.measured) for row in rows}
exercises.compare_choice(my_fastest, max(gains, key=gains.get), list(gains))

# %% [markdown]
# **Which draft for your case?** Find the line of what you have. Each field holds its fastest draft as measured, or
# *plain*, where none gains:

# %% tags=["nbval-ignore-output"]
drafter_table.decision_table(rows)

# %% [markdown]
# One text a field is few; read the lines. No training: copy, where text repeats. Hardly any memory: *exit*. A
# teacher: distil.
#
# ## Implement
#
# **Exercise 1** · medium · 10 minutes. Find the **latest** earlier place where the last `n` tokens stood, and return at
# most `gamma` tokens that followed there; `[]` where there is none.

# %%
def copy_draft(text, n, gamma):
    ...

# %%
exercises.check_look_up(copy_draft)

# %% [markdown]
# <details><summary>Hint 1</summary>Compare <code>text[place:place + n]</code> with <code>text[-n:]</code>.</details>
# <details><summary>Hint 2</summary>Go backwards from <code>len(text) - n - 1</code>.</details>
# <details><summary>Hint 3</summary>Return <code>text[place + n:place + n + gamma]</code>.</details>
#
# **Exercise 2** · easy · 5 minutes. `q` lists q of each token as it would be drawn. How many drafts has a round with an
# exact confidence stop?

# %%
def drafts_in_round(q, threshold):
    ...

# %%
exercises.check_drafts_in_round(drafts_in_round)

# %% [markdown]
# <details><summary>Hint 1</summary>Nothing follows the stop.</details>
# <details><summary>Hint 2</summary>Unsure means <code>value &lt; threshold</code>.</details>
# <details><summary>Hint 3</summary>The unsure token is kept: it counts.</details>
#
# **Exercise 3** · medium · 8 minutes. `drafts` maps a name to (α, c). With v = 1 and o = 0, return the name with the
# largest speed-up, or `"plain"`.

# %%
def best_draft(drafts, gamma):
    ...

# %%
exercises.check_best_draft(best_draft)

# %% [markdown]
# <details><summary>Hint 1</summary>Chapter 08: S = N/(γc + 1).</details>
# <details><summary>Hint 2</summary>N is the sum of <code>alpha**i</code>, i from 0 to γ.</details>
# <details><summary>Hint 3</summary>Begin with "plain" and 1.0.</details>
#
# The solutions:

# %% jupyter={"outputs_hidden": true}
for solution in ("look_up", "drafts_in_round", "speedups", "best_draft"):
    show_source(getattr(chapter_09, solution))
    print()

# %% [markdown]
# ## Break it
#
# `"M1"` resamples from p after a rejection, `"M19"` never rolls the draft's cache back, `"M21"` draws all guesses from
# one context. The monitor watches three stories by each. Which raises an **alarm**?

# %%
my_alarm = None

# %%
alarms = []
for id in (None, "M1", "M19", "M21"):
    watched = AcceptanceMonitor(baseline=0.85)
    for seed in range(3):
        run = museum.decode(id, pair.target, pair.drafter, prompt, gamma=4, max_new_tokens=40,
                            randomness=Seeded(seed))
        for round in run.trace.rounds:
            watched.add(round)
    alarms += [id] if watched.alarm else []
    off = museum.distance(museum.MISTAKES[id].example, id) if id else 0
    print(f"{id or 'right':5}  rate {watched.rate:.2f}, {'ALARM' if watched.alarm else 'quiet'};  law off by {off:.2f}")
exercises.compare_choice(my_alarm, " and ".join(alarms) or "none", ("M1", "M19", "M21", "M19 and M21"))

# %% [markdown]
# The monitor sees what is slow, not what is wrong; M19 falls too little for it. M1 ruins the law at full speed:
# **acceptance is the draft's health, the law is the decoder's.**
#
# ## Try it yourself
#
# Distil for longer, or two layers (`layers=2`), and price it:

# %% tags=["nbval-ignore-output"]
mine = {"mine": LookupElse(LookupDrafter(quick.target.vocab_size, 4, 3), student)}
seen = drafter_table.count_drafters(quick.target, mine, starts, gamma=4, max_new_tokens=40)
drafter_table.measured_table(drafter_table.measure_drafters(quick.target, mine, seen, turns=1))

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: eight drafts under one rule. Look-ups, the stop and both schedules keep the law of a toy, enumerated; a dropped
#   guess and typical acceptance do not.
# - Measured: one text of 40 tokens a kind; one machine, two turns.
# - Not shown: real models, whose first layers know less than this target's (chapter 11); trees (chapter 10); a GPU.
#
# ## Five questions to recall
#
# <details><summary>1. What must a drafter hand over with a token?</summary>The q it was drawn from.</details>
# <details><summary>2. Why does distillation raise α?</summary>It brings q to p, and 1 − α is their total
# variation.</details>
# <details><summary>3. Why does acceptance fall from head to head?</summary>A head does not see the guesses before its
# own.</details>
# <details><summary>4. Why keep the unsure token?</summary>Without it q says what was never drafted.</details>
# <details><summary>5. Acceptance fell, the texts are fine. What do you check?</summary>The draft's weights, tokenizer,
# sampling and cache; the kind of text.</details>
#
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | distillation | training a small model (student) on the whole p of a large one (teacher) |
# | look-up | a draft copied from the text so far |
# | hidden row | what a layer leaves for a token |
# | early exit | drafting with the target's first layers and its head |
# | Medusa heads | small heads that guess several places ahead from one hidden row |
# | typical acceptance | keeping tokens whose p passes a threshold; not exact |
# | confidence stop | ending a draft after the first token with a small q |
# | adaptive γ | γ chosen for each round from the acceptance so far |
# | warm-up | first tokens without drafts |
# | acceptance monitor | raises an alarm when the acceptance rate falls |
#
# - [Zhou et al. 2023, DistillSpec](https://arxiv.org/abs/2310.08461)
# - [Cai et al. 2024, Medusa](https://arxiv.org/abs/2401.10774)
# - [Elhoushi et al. 2024, LayerSkip](https://arxiv.org/abs/2404.16710)
# - [Prompt look-up decoding](https://github.com/apoorvumang/prompt-lookup-decoding)
#
# **Next:** chapter 10 drafts several candidates for each place, in a tree.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 5 cold open, 10 seismograph, 10 distillation, 10 law, 10 table, 15 exercises.
# - **Where a room gets stuck:** "drop what will be rejected anyway". Add up the dropping toy by hand.
# - **Five-minute cut:** the cold open, the curve, the decision table.
# </details>
