"""Questions before sliders and figures: a prediction of what they will show."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.courses import Option


@dataclass(frozen=True)
class Prediction:
    """A question, and options with their reasons."""

    question: str
    options: tuple[Option, ...]


def _right(text: str, why: str) -> Option:
    return Option(text=text, right=True, why=why)


def _wrong(text: str, why: str) -> Option:
    return Option(text=text, right=False, why=why)


PREDICTIONS: Mapping[str, Prediction] = {
    "copying": Prediction(
        "With 10 keys and a margin of 8, one key gets 99.7 % of the weight. There are 100 times as "
        "many keys. Which margin keeps this weight?",
        (
            _wrong("8, as before", "The other keys then get a quarter of the weight."),
            _right("About 12.7", r"The margin grows by $\ln(999 / 9) \approx 4.7$."),
            _wrong("800", "The weights of the other keys fall exponentially with the margin."),
        ),
    ),
    "averaging": Prediction(
        "With $t = 8$, the number of keys grows from 10 to 1000. How much weight do the other keys "
        "get together?",
        (
            _wrong("Still less than 1 %", "Each gets little, but there are 998 of them."),
            _right("About 14 %", "It is $998 / (2e^8 + 998)$."),
            _wrong("More than half", "For this, $n - 2$ must exceed $2e^8$, about 6,000."),
        ),
    ),
    "noisy-keys-one-head": Prediction(
        r"With $n = 10$ and $t = 8$, the key of $v_a$ gets longer by half, $\gamma = 1.5$. What is "
        "the weight of $v_a$ with one head?",
        (
            _wrong("One half", "The two keys share one softmax, and their scores differ."),
            _wrong("Three fifths", r"The factor $\gamma$ is in the exponent, not in the weight."),
            _right("Nearly 1", r"The scores are 12 and 8, and $\sigma(4) \approx 0.98$."),
        ),
    ),
    "random-heads": Prediction(
        "With $n = 20$ tokens, the width falls from 64 to 8. How much weight does a query give its "
        "own key?",
        (
            _wrong("Nearly 1, as before", r"Its score is $\sqrt{h}$, which falls from 8 to 2.8."),
            _right("Less than half", "The other 19 keys together get more."),
            _wrong("One twentieth", "Its score is still above that of the others."),
        ),
    ),
    "scale": Prediction(
        r"Entries have mean 0 and variance 1. The width grows from 64 to 256. What happens to the "
        r"standard deviation of $q \cdot k$?",
        (
            _wrong("It stays the same", r"That of $q \cdot k / \sqrt{h}$ does."),
            _right("It doubles", r"It is $\sqrt{h}$, so that it grows from 8 to 16."),
            _wrong("It grows fourfold", "The variance does."),
        ),
    ),
    "complexity": Prediction(
        "The width is 64. At which number of tokens do attention and the projections take equally "
        "many multiplications?",
        (
            _wrong("At 64", "Attention takes $2n^2 h$ there, two thirds of $3nh^2$."),
            _right("At 96", "$2n^2 h = 3nh^2$ at $n = 1.5h$."),
            _wrong("At 4096", "Attention takes 43 times as many there."),
        ),
    ),
    "order-of-products": Prediction(
        "There are 128 features, and values have width 64. From which number of tokens on does the "
        "product of keys and values first take fewer multiplications?",
        (
            _wrong("From 64", "The second order takes 1.3 times as many there."),
            _right("From 86", "$2md / (m + d)$ is 85.3."),
            _wrong("From 1024", "The first order takes 12 times as many there."),
        ),
    ),
    "truncation": Prediction(
        "A map of 64 tokens has rank 40. Do its factors save multiplications?",
        (
            _wrong("Yes, since 40 is less than 64", "There are two products with factors."),
            _right("No", "$2nkh$ is less than $n^2 h$ only for $k < n / 2$."),
            _wrong("It depends on the width of the values", "Both grow in proportion to $h$."),
        ),
    ),
    "causal-sums": Prediction(
        "A head has width 16, and its feature map 16 features. From which number of tokens on are "
        "the running sums smaller than the cache of keys and values?",
        (
            _right("From 9", r"The sums have $16 \cdot 17$ numbers, the cache 32 per token."),
            _wrong("From 17", "The cache holds two vectors of each token."),
            _wrong("From 272", "That is the number of entries of the sums."),
        ),
    ),
    "fourier-features": Prediction(
        "Entries have unit variance, and there are 256 waves. The width grows from 16 to 64. How "
        "does the relative error of the kernel change?",
        (
            _wrong("It falls", "It falls only if the norms of queries and keys are fixed."),
            _wrong("It doubles", r"It isn't proportional to $\sqrt{D}$."),
            _right("It grows more than tenfold", r"It is of the order of $e^{\sqrt{D}}$."),
        ),
    ),
    "favor": Prediction(
        "A key is the negative of a query. Which features estimate their kernel exactly?",
        (
            _wrong("Trigonometric ones", "They are exact for equal vectors."),
            _right("Positive and hyperbolic ones", "Their error is 0 at $x + y = 0$."),
            _wrong("None, without infinitely many directions", "One direction is enough."),
        ),
    ),
    "vanishing-and-exploding": Prediction(
        r"The spectral radius is 0.9 and the largest singular value 2. What happens to the "
        "gradient over 1, 10 and 100 steps?",
        (
            _wrong("It falls from the first step on", "One step multiplies it by up to 2."),
            _wrong("It grows without end", "The radius is below 1, which decides in the end."),
            _right("It grows, and then vanishes", "2 and 6 after 1 and 10 steps, then 0.005."),
        ),
    ),
    "relative-bias": Prediction(
        "There are 4 heads, and distances are clipped at 4. The number of tokens doubles from 16. "
        "Which number of parameters stays the same?",
        (
            _wrong("That of each distance", "It grows from 31 to 63 per head."),
            _right("That of the clipped table", "It is $(2k + 1)m = 36$, whatever $T$ is."),
            _wrong("Both", "Without clipping, each new distance has a parameter."),
        ),
    ),
    "adding": Prediction(
        "The width grows from 256 to 1024. What happens to the cross terms of word and position, "
        r"compared with $x_1 \cdot x_2$ of two different words?",
        (
            _wrong("They become half as large", r"They do compared with $x \cdot x$ of one word."),
            _right("The ratio stays the same", r"Both grow as $\sqrt{d}$."),
            _wrong("They become twice as large", r"Both grow as $\sqrt{d}$."),
        ),
    ),
    "shifting": Prediction(
        "Frequencies are counted from 0, and the width grows from 64 to 512. What happens to the "
        "longest wavelength?",
        (
            _wrong("It grows eightfold", r"It is never above $10000 \cdot 2 \pi$."),
            _right("It grows by less than a third", "From 75 % to 96 % of its limit."),
            _wrong("It stays the same", "The shortest wavelength does."),
        ),
    ),
    "receptive-field": Prediction(
        "There are 100 inputs and 2 heads. How many layers are needed until a node can depend on "
        "all inputs?",
        (
            _wrong("2", "A node has $3^2 = 9$ paths after 2 layers."),
            _right("5", "$3^4 = 81$ is less than 100, and $3^5 = 243$ more."),
            _wrong("50", "The number of paths grows exponentially with the layers."),
        ),
    ),
}
"""Predictions by study: one for each slider."""

FIGURE_PREDICTIONS: Mapping[str, Prediction] = {
    "noisy-keys-two-heads": Prediction(
        "The norm of one of two keys varies. One head averages both values; two heads return one "
        "value each, and their mean is taken. How large is the variance of the mean, compared with "
        "that of the one head?",
        (
            _wrong("As large", "The keys no longer compete in one softmax."),
            _wrong(
                "Half as large", "In most draws, each head returns its value: it is far smaller."
            ),
            _right("Less than a tenth", "A longer key hardly changes a weight near 1."),
        ),
    ),
    "designing": Prediction(
        r"The inputs are $u_d + u_b$, $u_c + u_b$ and $u_a$; the vector $u_b$ has length $\beta$. "
        "How near does a weighted average of the inputs come to $u_b$?",
        (
            _wrong("As near as one likes", "The other parts of the inputs can't cancel."),
            _right(
                r"To $0.63 \beta$, not nearer", r"It is $\sqrt{0.4} \beta$, with three weights."
            ),
            _wrong(r"To $\beta$, not nearer", r"Either input alone is at this distance."),
        ),
    ),
    "products": Prediction(
        "The scores of three states are 1054, 852 and −396. How much weight does softmax give the "
        "second?",
        (
            _wrong("Almost half", "Softmax compares exponentials of the scores, not the scores."),
            _right("Practically none", "It gets $e^{-202}$ times the weight of the first."),
        ),
    ),
    "masking": Prediction(
        "The score of a key is set to 0 instead of −∞. How much weight does the key get?",
        (
            _wrong("None", "Its exponential is 1, not 0."),
            _right("About as much as others", "$e^0 = 1$, and the other scores are around 0."),
        ),
    ),
    "projection": Prediction(
        "Keys and values are projected to 6 rows, which is exact without softmax. How accurate are "
        "the same projections inside the softmax?",
        (
            _wrong("They are exact, too", "A softmax isn't linear."),
            _wrong("The error is some percent", "A projection learned for softmax has 32 %."),
            _right("They are useless", "The error is three times the size of the output."),
        ),
    ),
    "approximations": Prediction(
        "Of 1,024 tokens, neighbors are similar. Whose error falls most from 64 to 512 features?",
        (
            _right("That of Linformer", "To 6 %: both tokens of a segment are nearly equal."),
            _wrong("That of BigBird", "It falls to 18 %."),
            _wrong("That of Performer", "It falls to 45 %."),
        ),
    ),
    "block-graph": Prediction(
        "Each of 128 blocks attends to its neighbors, so that the longest path has 127 steps. Each "
        "also gets three random blocks. How long is the longest path then?",
        (
            _wrong("2 steps", "That takes a global block, which is next to all others."),
            _right("6 steps", "Paths grow as the logarithm of the number of blocks."),
            _wrong("About 32 steps", "Each step reaches several times as many blocks as the last."),
        ),
    ),
    "furthest": Prediction(
        "One layer of BigBird finds the furthest vector for 23 % of all vectors. For how many do "
        "32 layers find it, each with other random blocks?",
        (
            _wrong("Still for 23 %", "Other blocks are seen, and the best vector so far is kept."),
            _right("For 98 %", "Each layer finds a share of the rest."),
            _wrong("For all", "A share of the rest always remains."),
        ),
    ),
    "backpropagation-through-time": Prediction(
        "What is the gradient of the second step's loss with respect to the third state?",
        (
            _right("0", "No path leads from a later state to an earlier loss."),
            _wrong(r"One factor $W_{hh}^\top$", "Such factors lead to earlier states."),
        ),
    ),
    "encoder-gradient": Prediction(
        "An encoder of 24 characters has no attention and isn't trained. How large is the gradient "
        "at the first character, compared with the last?",
        (
            _wrong("Equal", "The last state is its only way, through 23 steps."),
            _wrong("A third", "That is so with attention."),
            _right("Some millionths of it", "Each of 23 steps makes it smaller."),
        ),
    ),
    "bottleneck": Prediction(
        "A vanilla RNN reads a task token and then 12 letters. What does its last state lose?",
        (
            _wrong("The task, which was read first", "All letters are in the right case."),
            _right("Letters", "The longer the text, the fewer texts are right."),
            _wrong("Nothing: 64 numbers are enough", "Most of the longest texts are wrong."),
        ),
    ),
    "probing": Prediction(
        "A network with attention has read a text. Which characters can be read from its last "
        "state?",
        (
            _wrong("The first ones", "With attention they are read no better than by a guess."),
            _right("The last ones", "As before training: the decoder attends to the others."),
            _wrong("All", "It need not contain what the decoder can attend to."),
        ),
    ),
    "roles-of-sequences": Prediction(
        "Without attention, a decoder reads its own output instead of the right answer. Where is "
        "it less often right?",
        (
            _wrong("At all characters", "Nothing precedes the first, so it is equal there."),
            _right("After the first one", "An error changes what is read next."),
            _wrong("Nowhere", "Its state alone doesn't hold the text."),
        ),
    ),
    "encodings": Prediction(
        "One-hot vectors of positions are fixed. Which of the weights that read them does training "
        "change in direction?",
        (
            _wrong("None", "A position selects a column of weights, which has a gradient."),
            _right("Those of positions in the training texts", "All others get no gradient."),
            _wrong("All", "Columns of positions that never occur get no gradient."),
        ),
    ),
    "one-way-or-both": Prediction(
        "A mood is good if two of yesterday, today and tomorrow are sunny. Each is a coin flip. "
        "How often is a network right if it reads no later day?",
        (
            _wrong("Half of the time", "If the known days are equal, they decide."),
            _right("Three times in four", "It guesses where they differ, half of the time."),
            _wrong("Always, after enough training", "Tomorrow is independent of the past."),
        ),
    ),
    "fixed-windows": Prediction(
        "There are 8 symbols and a window of 4 tokens. To which loss does training lead where the "
        "symbol is 8 tokens back?",
        (
            _wrong("To 0", "No step of training shows the model that token."),
            _wrong("To half of a guess", "Nothing in the window depends on that token."),
            _right(r"To $\ln 8 \approx 2.08$", "That of a guess, after any training."),
        ),
    ),
    "permutation": Prediction(
        "A Transformer of two layers has no positions. When does it depend on the order of tokens?",
        (
            _wrong("Never", "A causal mask gives each token a different number of keys."),
            _right("With a causal mask", "Without one, the states are only permuted."),
        ),
    ),
    "word-order": Prediction(
        "Test sentences come in pairs: who chased whom, and the reverse. How many answers of a "
        "model without positions are right after training?",
        (
            _wrong("One in twelve", "Of twelve nouns, two occur in a sentence."),
            _right("Half", "It gives both sentences of a pair the same answer."),
            _wrong("Nearly all", "No training distinguishes equal inputs."),
        ),
    ),
    "masked-autoencoder": Prediction(
        "Masks replace the words and their positions. How do the predictions at several masks "
        "differ?",
        (
            _wrong("By the words around them", "Without positions, no word is around a mask."),
            _right("Not at all", "Equal vectors have equal queries and outputs in each layer."),
        ),
    ),
    "free-labels": Prediction(
        "A guess among all characters has a loss of 3.37 nats. Counts of pairs in some 450 "
        "characters predict the next 150. How large is their loss?",
        (
            _wrong("3.37: there are no labels", "Each character is the label of the one before."),
            _right("2.55", "Even that little text shows which pairs are frequent."),
            _wrong("Almost 0", "A character before says only little about the next."),
        ),
    ),
    "gaussian-identity": Prediction(
        "The exponent of the Gaussian kernel is drawn against that of softmax, a dot per pair. "
        "When are all dots on the diagonal?",
        (
            _wrong("Always", "The norms of the query and the key are missing."),
            _right("With both squared norms added", "The identity is exact."),
            _wrong("With many random features", "The identity has none."),
        ),
    ),
    "performer": Prediction(
        "In a trained model with two heads, FAVOR+ with 64 directions replaces softmax. How much "
        "accuracy is lost?",
        (
            _wrong("Almost none", "The estimates are bad where attention is sharp."),
            _wrong("About a tenth", "That is the largest gap if FAVOR+ is used in training."),
            _right("More than two thirds", "The weights were learned for another attention."),
        ),
    ),
    "architectures": Prediction(
        "An encoder and a decoder classify reviews after 300 steps. Which is right more often?",
        (
            _wrong("The encoder", "It suits the task, but it learns more slowly here."),
            _right("The decoder", "With each of five seeds."),
        ),
    ),
    "different-widths": Prediction(
        "An encoder is half as wide. How many tensors of a decoder of two layers change their "
        "shape?",
        (
            _wrong("None", "Keys and values are computed from the encoder's states."),
            _right("2", "One per layer: the projection to keys and values."),
            _wrong("All", "The decoder's own states keep their width."),
        ),
    ),
    "several-summaries": Prediction(
        "Five summaries of an article are made by each method. By which do they differ most?",
        (
            _wrong("Beam search", "The mean ROUGE-L of two is 0.85; of two samples, 0.64."),
            _right("Sampling at temperature 1", "And they are worse on average."),
            _wrong("Top-k with two tokens", "Two tokens at each step leave few summaries."),
        ),
    ),
    "heads-as-filters": Prediction(
        "Each of 16 positions refers to a random other one. What share of the variance of the "
        "values there does a convolution with a tap for every offset explain?",
        (
            _wrong("All", "Which offset is right differs from position to position."),
            _right("A sixteenth", "Each offset is the right one that often."),
            _wrong("Half", "A tap is right at a sixteenth of the positions."),
        ),
    ),
    "two-heads": Prediction(
        "A head of argmax attention has to name two tokens, each one of 8. How often is it right "
        "at most?",
        (
            _wrong("One time in 8", "The choice of a token also depends on the other one."),
            _right("One time in 4", "In $2k$ of $k^2$ cases at most, with $k = 8$."),
            _wrong("Always, after enough training", "A head passes on one value."),
        ),
    ),
    "pretrained-heads": Prediction(
        "A head of BERT attends to the previous token. The words of each sentence are reversed. "
        "What does it attend to?",
        (
            _right("The previous token", "Its queries and keys depend on positions."),
            _wrong("The token that used to be previous", "It depends on positions, not on words."),
            _wrong("No token in particular", "It gives the previous one 0.97 of its weight."),
        ),
    ),
    "pretrained-decoder": Prediction(
        "Which share of the heads of a pretrained decoder gives the first token more than 0.3 of "
        "its weight?",
        (
            _wrong("A tenth", "That is the mean weight in the first layer; later ones have 0.54."),
            _wrong("Half", "There are more: the first token is an attention sink."),
            _right("Four fifths", "82 % of all heads do. The value of this token adds little."),
        ),
    ),
    "head-patterns": Prediction(
        "How much weight does a small encoder give to later tokens?",
        (
            _wrong("None", "A decoder doesn't; an encoder has no causal mask."),
            _wrong("A tenth", "It predicts masked words from both sides."),
            _right("About half", "Earlier tokens get the other half."),
        ),
    ),
    "two-meanings": Prediction(
        'In two sentences, "play" has the same position and different meanings. From which layer '
        "on do its queries differ?",
        (
            _wrong("From the first", "Its input there is the word and the position alone."),
            _right("From the second", "The first layer has mixed in the other words."),
            _wrong("From the last", "The cosines are lower in the inner layers."),
        ),
    ),
    "structures": Prediction(
        "The best head is compared with the best fixed distance from a word to a related one, such "
        "as the subject of a verb. Where is the distance as good?",
        (
            _wrong("Everywhere", "Optional words vary the distances."),
            _right("For the previous word", "Elsewhere the head is better by 0.3 or more."),
        ),
    ),
    "three-sentences": Prediction(
        'A small decoder reads "the dogs near the house" and predicts the verb. How much weight '
        "does the best head give to the noun beside the verb?",
        (
            _wrong("Most of it", "The verb doesn't agree with this noun."),
            _wrong("As much as to the subject", "The subject gets more than two thirds."),
            _right("Less than a twentieth", "The subject gets most of the weight."),
        ),
    ),
    "linear-probe": Prediction(
        "There are seven classes of words. How often does a linear probe of an untrained encoder "
        "name the class of a word to which it wasn't fitted?",
        (
            _right(
                "About one time in seven", "That is chance: words of a class aren't similar yet."
            ),
            _wrong("Half of the time", "Random states of other words of the class are no help."),
            _wrong("Nearly always", "That is so after training."),
        ),
    ),
    "untrained": Prediction(
        "A model of width 64 has weights from $N(0, 0.02^2)$. How do its attention weights differ "
        "from uniform ones?",
        (
            _right("By a few percent", "Scores have a standard deviation of about 0.025."),
            _wrong("Each head prefers other words", "That takes training."),
            _wrong("Equal words attend to each other", "Queries and keys are independent."),
        ),
    ),
    "equal-heads": Prediction(
        "Two heads begin with equal weights, in the output projection too. What becomes of them?",
        (
            _wrong("Each learns another feature", "Their gradients are equal at every step."),
            _right("They stay equal", "The loss of unequal heads is lower, but out of reach."),
        ),
    ),
    "trained-embeddings": Prediction(
        "Before training, products of a word and a position have an eighth of the size of a word's "
        "with itself. What is this ratio after training?",
        (
            _wrong("They are as large", "Words grow, and stay nearly orthogonal to positions."),
            _right("About a ninth", "The ratio hardly changes."),
        ),
    ),
    "pretraining": Prediction(
        "A model reads a text without the people that it is asked about. How often is it right?",
        (
            _wrong("Half as often as with them", "The form of an answer is no help without facts."),
            _right("As often as a guess", "The text has no facts about them."),
        ),
    ),
    "recalled": Prediction(
        "Which signal separates answers about people in the text from answers about absent ones?",
        (
            _wrong("The answer's text", "All answers are places, in the same form."),
            _wrong("The answer's probability", "Invented answers are as probable."),
            _right("The familiarity of the name", "Names of the text are far more probable."),
        ),
    ),
    "fallback": Prediction(
        "There are 20 places, independent of names. Which probability do answers about absent "
        "people have on average?",
        (
            _wrong("A twentieth", "The model treats names as signs of places."),
            _wrong("About a half", "Confidence is higher than that, without any reason."),
            _right("More than 0.8", "A guess looks like a fact."),
        ),
    ),
    "bias": Prediction(
        "A place is the answer to a third of the training questions. How often does a model name "
        "it for absent people?",
        (
            _wrong("A third of the time", "Its mean probability is about that."),
            _right("More than half of the time", "The most probable answer is named each time."),
            _wrong("Never", "It depends on frequencies and names alone."),
        ),
    ),
    "capacity": Prediction(
        "A model stores 1.3 bits per parameter after reading each fact 100 times. How many after "
        "1,000 times?",
        (
            _wrong("1.3", "The losses still fall with more readings."),
            _right("2", "As published for far larger models."),
            _wrong("13", "The bits don't grow in proportion to the readings."),
        ),
    ),
    "counterfactual": Prediction(
        "One of five biographies of a person states another birthplace. How often does the model "
        "name that one?",
        (
            _wrong("One time in five", "The other four state the old place."),
            _right("Hardly ever", "Less than one time in ten, at each of five seeds."),
        ),
    ),
    "reversal": Prediction(
        'A text states "A was born in B" of each person, and training asks in both directions '
        "about others. How often is the model right about who was born in B?",
        (
            _right("Never", "The name is never predicted from the place."),
            _wrong("Half as often as about birthplaces", "It recalls in the direction read."),
            _wrong("As often as about birthplaces", "The text doesn't train this direction."),
        ),
    ),
    "augmentation": Prediction(
        "A model reads five wordings of a biography with permuted facts, or one five times as "
        "often. Questions are mixed in. From which does it recall more?",
        (
            _wrong("From one, read more often", "It learns the place from the whole text before."),
            _right("From five wordings", "By 0.24 or more, at each of five seeds."),
            _wrong("Equally much from both", "The same facts aren't equally easy to retrieve."),
        ),
    ),
    "seen-once": Prediction(
        "A twentieth of the text is repeated ten times. What happens to the share of false "
        "statements?",
        (
            _wrong("It grows, with less other text", "All documents are still read."),
            _right("It falls", "By more than a tenth of all generated documents."),
            _wrong("It stays the same", "Repeated facts are generated more often."),
        ),
    ),
    "span-corruption": Prediction(
        "Texts are truncated to 4 to 112 of 128 characters, each length as likely. How much of a "
        "text is moved to the end, on average?",
        (
            _right("A quarter", "14 of 58 characters on average."),
            _wrong("A half", "The span has at most half of the text."),
        ),
    ),
    "concepts": Prediction(
        "The first token is changed. In which untrained network does the state 48 tokens later "
        "still change visibly?",
        (
            _right("With attention", "Each token is one step away."),
            _wrong("In an RNN", "The change shrinks to less than a billionth."),
            _wrong("With a window of four tokens", "It ends after four tokens."),
        ),
    ),
    "wrong-options": Prediction(
        "An RNN predicts the next token after each of 16 prefixes. To what do all of its "
        "probabilities sum?",
        (
            _wrong("To 1", "Those after one prefix do."),
            _right("To 16", "Each prefix has its own distribution."),
        ),
    ),
}
"""Predictions by study: one for each figure without a slider."""
