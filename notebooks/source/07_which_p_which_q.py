# %% [markdown]
# # 07 · Settle which p, and which q
#
# **In this chapter you will have shown** that the law stays the target's for any temperature, top-k or top-p on
# either side, and for a rounded target, because p and q are whatever is really sampled from, while a ratio with
# another q writes by another law, even where more drafts are kept.
#
# | to read | to do | needs | runs |
# |---|---|---|---|
# | 20 minutes | 35 minutes | chapters 03, 04 and 06 | offline, on a laptop CPU, in under 45 s |

# %%
import torch
from specdec_core import Sampling, Seeded, TableDrafter, TableModel, autoregressive_decode, exact_law
from specdec_core import largest_difference, load_pair, marginal, speculative_decode, total_variation
from specdec_core.lab import exercises, museum
from specdec_core.lab.notebook import show_source
from specdec_core.widgets import coin_tape, warping_desk

# %% [markdown]
# ## A draft that never samples
#
# The target samples at temperature 1, as always. The draft does not: at temperature 0 it offers its likeliest
# word, always. Round 3 of such a run:

# %%
pair = load_pair("storyworld", dtype="float64")
prompt, greedy = pair.encode("Once upon a time"), Sampling(temperature=0)
run = speculative_decode(
    pair.target, pair.drafter, prompt, draft_sampling=greedy, max_new_tokens=40, randomness=Seeded(3)
)
coin_tape(run.trace, pair.decode, round=3)

# %% [markdown]
# Each word on offer has $q = 1$: nothing else could have been drafted. So each is kept with its own $p$.
# *Squirrel* had $p = .06$ and was kept; *Ella* was not.
#
# **One question to keep in mind:** the two sides sample in quite different ways. Is the law of the text still
# the target's?
#
# ## What you will be able to do
#
# 1. Say which p and which q enter the ratio, for any settings.
# 2. Show that the settings of the draft move α, and never the law.
# 3. Recognise a q, or a penalty, that was taken at the wrong place.
# 4. Say whose law a rounded model writes by.
#
# Four beliefs that end here:
#
# - *"Temperature and top-p must be the same on both sides."* Any setting is exact.
# - *"Temperature 0 or 1 is most stable."* You will measure it.
# - *"More drafts kept means it works better."* Sometimes it means that the law is broken.
# - *"With a quantised target it is only approximate."* A rounded model has a law too.
#
# ## Predict
#
# Three words, $p = (.5, .3, .2)$, $q = (.4, .35, .25)$. Both sides cut to their two likeliest (`top_k=2`).
# A right decoder then keeps .908 of the drafts. A careless one draws from the cut q, and puts the q from
# *before* the cut into the ratio. Which share of the drafts does it keep?
#
# Then, on real text, with the target at temperature 1: a draft at temperature 1 has .840 of its words kept.
# And a draft at temperature 0?

# %%
my_kept = None
my_greedy = None

# %% [markdown]
# ## Run: shape a row
#
# A model gives **logits** (chapter 01), one number a word. `Sampling` makes a distribution of them. It divides by the
# temperature. Then *top-k* keeps the k likeliest words, and *top-p* the smallest set of likeliest words that
# holds at least this much probability. What is kept is scaled to add up to 1. All this is called *warping*.

# %%
p, q = [0.5, 0.3, 0.2], [0.4, 0.35, 0.25]
sides = {
    "temperature 1": Sampling(), "temperature 0.5": Sampling(0.5), "top-k 2": Sampling(top_k=2),
    "top-p 0.6 at 0.5": Sampling(0.5, top_p=0.6), "temperature 0": greedy,
}
logits = torch.tensor([p, q], dtype=torch.float64).log()
for name, side in sides.items():
    rows = [[round(x, 3) for x in row] for row in side.probs(logits).tolist()]
    print(f"{name:17} p = {rows[0]}  q = {rows[1]}")

# %% [markdown]
# Look at *top-p 0.6 at 0.5*: one word is left of p, two of q. The same number cuts two models at different
# places. "The same top-p on both sides" does not make them alike.
#
# Now let each side have any of the five: 25 pairs of settings. Walk the real decoder through all its outcomes
# (chapter 06) and compare with plain decoding. Count how often a draft is kept, too.

# %%
toy = TableModel(lambda prefix: p, 3), TableDrafter(lambda prefix: q, 3)

def walk(side, draft_side, look):
    return exact_law(lambda coins: look(speculative_decode(
        *toy, [0], sampling=side, draft_sampling=draft_side, gamma=1, max_new_tokens=2,
        randomness=coins)))

def plain_law(target, prompt, side):
    return exact_law(lambda coins: autoregressive_decode(
        target, prompt, sampling=side, max_new_tokens=2, randomness=coins).tokens)

# %%
gaps = [
    largest_difference(walk(side, other, lambda out: out.tokens), plain_law(toy[0], [0], side))
    for side in sides.values() for other in sides.values()
]
print(len(gaps), "pairs of settings, all laws equal below 1e-15:", max(gaps) < 1e-15)

# %%
for name, side in sides.items():
    laws = [walk(side, other, lambda out: [out.stats.accepted]) for other in sides.values()]
    print(f"target {name:17} keeps", *(f"{law.get((1,), 0):.3f}" for law in laws))

# %% [markdown]
# A line is a target, a column a draft, in the same order. The law is right in all 25; the share kept runs from
# .4 to 1. So much for the cold open: column 5 is the draft that never samples, and it is as exact as the rest.
#
# The bundled pair, with a draft that is colder and cut otherwise:

# %%
code, two = pair.encode("def add("), Sampling(top_k=2)

def real_law(target, **settings):
    return exact_law(lambda coins: speculative_decode(
        target, pair.drafter, code, sampling=two, gamma=1, max_new_tokens=2, randomness=coins,
        **settings).tokens)

odd = real_law(pair.target, draft_sampling=Sampling(0.5, top_k=3))
print("equal below 1e-12:", largest_difference(odd, plain_law(pair.target, code, two)) < 1e-12)

# %% [markdown]
# ## Run: what moves is α
#
# $\alpha = \sum \min(p, q)$, the mean share of drafts kept (chapter 03), is a matter of speed. Measure it at
# every place of three texts that the target wrote: a story, a recipe, code. One forward of each model gives all
# rows; no coin is tossed.

# %%
starts = [pair.encode(text) for text in ("Once upon a time", "Recipe: soup with", "def add(")]
texts = [
    start + speculative_decode(
        pair.target, pair.drafter, start, max_new_tokens=64, randomness=Seeded(1)).tokens
    for start in starts
]

def all_logits(model):
    return torch.cat([model.fresh().forward(text[:-1], keep=64) for text in texts])

# %%
target_logits, draft_logits = all_logits(pair.target), all_logits(pair.drafter.model)

def alpha(side, draft_side):
    p, q = side.probs(target_logits), draft_side.probs(draft_logits)
    return torch.minimum(p, q).sum(-1).mean().item()

print(f"{len(target_logits)} places, alpha {alpha(Sampling(), Sampling()):.3f}")

# %%
warmths = (0, 0.5, 0.75, 1, 1.5)
print("draft at        ", *(f"{t:5}" for t in warmths))
for t in warmths:
    line = [alpha(Sampling(t), Sampling(other)) for other in warmths]
    print(f"target at {t:5}  ", *(f"{a:5.3f}" for a in line))

exercises.compare_prediction(my_greedy, round(alpha(Sampling(), greedy), 3), "(share of drafts kept)")

# %% [markdown]
# Read along the line *target at 1*: the draft keeps most at .75, not at 1. Read down the diagonal: temperature 0
# or 1 is not the best there is, and nothing is unstable at any other. (The places are those of texts written at
# temperature 1; a hotter target would visit others.)
#
# And top-p?

# %%
shares = (0.5, 0.7, 0.9, 1.0)
print("draft top-p       ", *(f"{share:5}" for share in shares))
for share in shares:
    line = [alpha(Sampling(top_p=share), Sampling(top_p=other)) for other in shares]
    print(f"target top-p {share:4}  ", *(f"{a:5.3f}" for a in line))

# %% [markdown]
# The same number on both sides is a fair start for speed, and no condition for the law. A target with no cut is
# served best by a draft cut at .9.
#
# ## See: the warping desk
#
# Three bars a word: how often it is drafted, how often it is wanted, how often it comes out, by the walked law
# of the real code. Dashed: the row before it was shaped. The thick line is the q that the ratio uses.
#
# 1. Move the draft's temperature, top-k and top-p. What changes, what never does?
# 2. Set both top-k to 2 and the draft's temperature to 1. Then let the ratio use *q before top-k and top-p*.
# 3. Choose the place after “Recipe: soup with”. Which draft settings keep most, if the target has top-p .75?
# 4. Set the draft's temperature to 0 and let the ratio use q *also before temperature*. The museum calls this case of
#    M12's slip M2.

# %%
warping_desk(pair)

# %% [markdown]
# ## Explain
#
# ```text
# target: logits ─► penalties ─► temperature ─► top-k ─► top-p ─► softmax ─► p ─────────────────┐
# draft:  logits ─► penalties ─► temperature ─► top-k ─► top-p ─► softmax ─► q ─┬─ draw x ─► u·q(x) < p(x)
#                                                                               └─ the same q ─┘
# ```
#
# The proof of chapter 03 asked one thing of q: x is drawn from it. It never asked where q comes from. With
# temperature T and a kept set K,
#
# $$p(x) = \frac{e^{z(x) / T}}{\sum_{y \in K} e^{z(y) / T}} \text{ for } x \in K, \quad 0 \text{ elsewhere.}$$
#
# In shapes: logits and p are $[\gamma + 1, V]$, q is $[\gamma, V]$. In code, one function for both sides:

# %%
show_source(Sampling.probs)

# %% [markdown]
# And the drafter: `probs` is what the token is drawn from, and `probs` is what it returns. Nothing else can enter
# the ratio:

# %%
from specdec_core.drafters import ModelDrafter

show_source(ModelDrafter.propose)

# %% [markdown]
# **Greedy is the limit.** As T falls to 0, p becomes *one-hot*: all its mass on one word. The rule $u \cdot q < p$
# then compares words, with no case of its own. Only a tie needs a rule, and the limit has none:

# %%
rows = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], dtype=torch.float64).log()
for t in (1, 0.5, 0.1, 0.01, 0):
    one, tie = [[round(x, 3) for x in row] for row in Sampling(t).probs(rows).tolist()]
    print(f"temperature {t:<4}  {one}  {tie}")

# %% [markdown]
# A tie stays a tie at every T above 0. At 0 the lowest id wins, on both sides.
#
# ## Penalties read a prefix
#
# Some rules depend on the text so far: a repetition penalty, *no pair of words twice*, a grammar. Row i of the
# target continues the text **and the first i drafts**, so its penalty must read these too. The package takes the
# processors of `transformers` as they are. Here no two words may follow each other twice:

# %%
from transformers import NoRepeatNGramLogitsProcessor

soup = pair.encode("Recipe: soup with")
fresh_pairs = Sampling(temperature=0, processors=[NoRepeatNGramLogitsProcessor(2)])
options = {"sampling": fresh_pairs, "max_new_tokens": 24}
plain = autoregressive_decode(pair.target, soup, **options)
fast = speculative_decode(pair.target, pair.drafter, soup, **options)
print("same words:", plain.tokens == fast.tokens)

# %% [markdown]
# M13 lets all rows of a round read the text *before* the drafts. Which pairs does it write twice? (A mark or a line
# break counts as a word. The odd end of the right text is the penalty's own doing.)

# %%
once = museum.decode("M13", pair.target, pair.drafter, soup, **options)
for out in (fast, once):
    print(pair.decode(out.tokens), end="\n\n")

# %% [markdown]
# ## A rounded model is its own target
#
# A number in **bfloat16** has 8 binary digits. Between .5 and 1 that makes steps of 1/256, for a coin as for p. So
# the package takes rounded logits, widens them to float32 before it makes p, and compares in float64.

# %%
rounded = load_pair("storyworld", dtype="bfloat16")
row = rounded.target.fresh().forward(code, keep=1)
print("logits", row.dtype, "-> p", Sampling().probs(row).dtype)
print("coins .7, .701, .702:", torch.tensor([0.7, 0.701, 0.702]).bfloat16().tolist())

# %% [markdown]
# Now round harder: every weight to the nearest of $2^{bits} - 1$ levels, a scale for each row of a matrix. That is a
# **quantised** model. How far is it from the full one, and how many drafts does it keep, at the places above?

# %%
from copy import deepcopy
from specdec_core import CausalLM

def quantised(model, bits):
    model, levels = deepcopy(model), 2 ** (bits - 1) - 1
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            step = layer.weight.data.abs().amax(-1, keepdim=True) / levels
            layer.weight.data = (layer.weight.data / step).round() * step
    return CausalLM(model)

# %%
for bits in (8, 4, 3):
    small = quantised(pair.target.model, bits)
    rows, full, q_rows = map(Sampling().probs, (all_logits(small), target_logits, draft_logits))
    away = (rows - full).abs().sum(-1).mean().item() / 2
    kept = torch.minimum(rows, q_rows).sum(-1).mean().item()
    print(f"{bits} bits: {away:.3f} from the full target, alpha {kept:.3f}")

gap = largest_difference(real_law(small), plain_law(small, code, two))
print("3 bits, equal to its own plain law below 1e-12:", gap < 1e-12)

# %% [markdown]
# The 3-bit model is another author, and speculative decoding writes exactly as that author would: the distance
# comes from the rounding, none of it from the drafts. The same draft fits it less well, so fewer are kept.
#
# With coarse numbers one thing is added. A forward over two tokens may round otherwise than two forwards over one,
# so verification may see other last digits than plain decoding does. How far the two laws then lie apart depends on
# the machine, and not on the count of digits alone: where both ways round to the same logits, next to nothing is
# left, so 1e-22 may stand beside 7e-07. On yours:

# %% tags=["nbval-ignore-output"]
formats = {name: load_pair("storyworld", dtype=name) for name in ("float32", "float16")}
formats["bfloat16"] = rounded
for name, other in formats.items():
    law = real_law(other.target)
    print(f"{name:9} {total_variation(law, plain_law(other.target, code, two)):.0e}")

# %% [markdown]
# ## Same seed, other words
#
# A seed fixes the coins, not the words. Plain and speculative decoding spend the coins on different things:

# %%
plain = autoregressive_decode(pair.target, prompt, max_new_tokens=24, randomness=Seeded(2))
fast = speculative_decode(
    pair.target, pair.drafter, prompt, max_new_tokens=24, randomness=Seeded(2))
for out in (plain, fast):
    print(pair.decode(out.tokens))

# %% [markdown]
# And in plain decoding with other number formats, where a word changes as soon as one coin falls close to an edge:

# %% tags=["nbval-ignore-output"]
for name, other in formats.items():
    out = autoregressive_decode(other.target, prompt, max_new_tokens=24, randomness=Seeded(2))
    same = sum(a == b for a, b in zip(out.tokens, plain.tokens))
    print(f"{name:9} {same} of 24 words as in float64")

# %% [markdown]
# None of these is a bug. A test that compares words for one seed can fail right code and pass wrong code. Compare
# laws.
#
# ## Implement
#
# **Exercise 1** · easy · 10 minutes. Write the shaped row: logits in, as a list; divided by the temperature (above 0),
# cut to the `top_k` likeliest; probabilities out, 0 for a cut word. Logits may be as large as 800.

# %%
def warped(logits, temperature, top_k):
    ...

# %%
exercises.check_warped(warped)

# %% [markdown]
# <details><summary>Hint 1</summary>Begin with <code>z = torch.tensor(logits) / temperature</code>.</details>
# <details><summary>Hint 2</summary>The k-th largest is <code>z.topk(top_k).values[-1]</code>; what is below it becomes
# <code>-torch.inf</code>, not 0.</details>
# <details><summary>Hint 3</summary><code>masked_fill</code> does that; <code>softmax(-1)</code> comes last.</details>
#
# The package's cut; the lines around it stand in `Sampling.probs`, above:

# %% jupyter={"outputs_hidden": true}
from specdec_core.sampling import keep_top_k

show_source(keep_top_k)

# %% [markdown]
# **Exercise 2** · medium · 5 minutes. Draft one token. `shape(logits)` gives the row after temperature and cuts,
# `draw(row)` draws an index. Return the token and the q that belongs into the ratio. The check walks all draws.

# %%
def draft_one(logits, shape, draw):
    ...

# %%
exercises.check_draft_one(draft_one)

# %% [markdown]
# <details><summary>Hint 1</summary>Which row was the token drawn from?</details>
# <details><summary>Hint 2</summary>All of it: after a rejection, max(p − q, 0) needs q of every word.</details>
# <details><summary>Hint 3</summary>Give the row a name, draw from it, return both.</details>
#
# <details><summary>Solution</summary><pre>
# q = shape(logits)
# return draw(q), q</pre></details>
#
# **Exercise 3** · easy · 5 minutes. A penalty reads a prefix. Return the list of prefixes of all $\gamma + 1$
# rows, for a text and γ drafts, both lists.

# %%
def prefixes(text, drafts):
    ...

# %%
exercises.check_prefixes(prefixes)

# %% [markdown]
# <details><summary>Hint 1</summary>Row 0 judges the first draft: it continues the text alone.</details>
# <details><summary>Hint 2</summary>Row i continues <code>text + drafts[:i]</code>.</details>
# <details><summary>Hint 3</summary>i runs from 0 to γ: the last row gives the bonus word.</details>
#
# The solution, as the package has it: `first` is the length of the text before the first row's word.

# %% jupyter={"outputs_hidden": true}
show_source(Sampling._process)

# %% [markdown]
# ## Break it
#
# Now the decoder of your prediction, M12: both sides cut to two words, the ratio uses q before the cut.

# %%
def broken(mistake, look):
    return exact_law(lambda coins: look(museum.decode(
        mistake, *toy, [0], sampling=two, gamma=1, max_new_tokens=2, randomness=coins)))

kept = {m: broken(m, lambda out: [out.stats.accepted]).get((1,), 0) for m in (None, "M12")}
print({mistake: round(share, 3) for mistake, share in kept.items()})
exercises.compare_prediction(my_kept, round(kept["M12"], 3), "(share of drafts kept)")

# %%
laws = [marginal(broken(m, lambda out: out.tokens), 1) for m in (None, "M12")]
for law in laws:
    print({tokens: round(x, 3) for tokens, x in law.items()})
print(f"total variation {total_variation(*laws):.3f}")

# %% [markdown]
# Every draft is kept, and that is the damage: before the cut q is smaller, so $p/q$ is larger, and the law moves to
# the draft's. On the real pair, with a draft at temperature .5 and its q recorded at temperature 1:

# %%
for mistake in (None, "M12"):
    runs = [museum.decode(
        mistake, pair.target, pair.drafter, prompt, draft_sampling=Sampling(0.5),
        max_new_tokens=100, randomness=Seeded(seed)).stats for seed in (1, 2, 3)]
    kept, lost = sum(r.accepted for r in runs), sum(r.rejected for r in runs)
    print(f"{mistake or 'right':6} acceptance rate {kept / (kept + lost):.3f}")

# %% [markdown]
# A dashboard would call that progress.
#
# Three neighbours. M2 drafts the likeliest word and puts the softmax q into the ratio. M13 you have met. M15 keeps p,
# q and the coin in bfloat16: of its 256 coins 199 keep a word that wants .7778 of them.

# %%
for id, length in (("M2", 1), ("M13", 2), ("M15", 1)):
    apart = museum.distance(museum.MISTAKES[id].example, id, length)
    print(f"{id:4} distance {apart:.5f}, seen by: {', '.join(museum.seen_by(id))}")

# %% [markdown]
# ## Try it yourself
#
# Give each side what you like, and your own opening. Does α get above the best of the tables? Does the toy's law move?

# %%
mine, my_draft = Sampling(0.8, top_p=0.9), Sampling(0.6)
print(f"alpha {alpha(mine, my_draft):.3f}, and {alpha(mine, mine):.3f} with the same on both sides")
gap = largest_difference(walk(mine, my_draft, lambda out: out.tokens), plain_law(toy[0], [0], mine))
print("the toy's law is off by", round(gap, 12))
out = speculative_decode(
    pair.target, pair.drafter, pair.encode("Once upon a time, there was a"), sampling=mine,
    draft_sampling=my_draft, max_new_tokens=40, randomness=Seeded(7),
)
print(pair.decode(out.tokens))

# %% [markdown]
# ## What was shown, and what was not
#
# - Shown: on a toy, for 25 pairs of settings, and at one place of the bundled pair, the law is that of plain
#   decoding with the target's settings. On 192 places of three texts the draft's settings move α.
# - Shown: rounded weights make another target, whose law is kept.
# - Not shown: how far a quantised large model is from its full one, or speed: chapter 08.
#
# ## Five questions to recall
#
# <details><summary>1. Which q belongs into the ratio?</summary>The row the draft was drawn from, after everything
# that shaped it.</details>
# <details><summary>2. Must both sides have the same temperature?</summary>No. The law is that of the target's
# settings; α depends on both.</details>
# <details><summary>3. Acceptance went up after a change. What do you check?</summary>The law: M12 keeps every
# draft.</details>
# <details><summary>4. Which prefix does the penalty of row i read?</summary>The text and the first i
# drafts.</details>
# <details><summary>5. Is a quantised target exact?</summary>Its output has the quantised model's law; that model
# differs from the full one.</details>
#
# ## Words of this chapter, and where to go next
#
# | word | meaning |
# |---|---|
# | top-p | keep the smallest set of likeliest words with at least this mass |
# | warping | making p of logits: penalties, temperature, top-k, top-p |
# | penalty, logits processor | a rule that changes logits by what the text holds so far |
# | bfloat16 | a number of 16 bits, 8 of them for its digits |
# | quantised | weights rounded to few bits |
#
# - [Leviathan, Kalman, Matias 2023](https://arxiv.org/abs/2211.17192), section 2.2: all sampling as standard sampling
# - [Holtzman et al. 2020](https://arxiv.org/abs/1904.09751), top-p
# - [Chen et al. 2023](https://arxiv.org/abs/2302.01318), where p and q are warped ones too
#
# **Next:** chapter 08, *When does it pay?*, measures time: α is half of the answer.

# %% [markdown]
# <details><summary><b>For the instructor</b></summary>
#
# - **Minutes:** 5 cold open and predict, 10 grid and tables, 10 the desk, 5 penalties, 5 rounding, 15 exercises,
#   5 break it.
# - **Where a room gets stuck:** "the draft must be at the target's temperature". Ask which line of the proof
#   needs it.
# - **Draw:** the two lines of *Explain*, and the arrow from q to both the draw and the ratio.
# - **Five-minute cut:** the desk: move the draft's temperature, then let the ratio use another q.
# </details>
