"""Questions before figures: a prediction of what they will show."""

from collections.abc import Mapping

from regard.book.predictions import Prediction, right, wrong

FIGURE_PREDICTIONS: Mapping[str, Prediction] = {
    "noisy-keys-two-heads": Prediction(
        "The norm of one of two keys varies. One head averages both values; two heads return one "
        "value each, and their mean is taken. How large is the variance of the mean, compared with "
        "that of the one head?",
        (
            wrong("As large", "The keys no longer compete in one softmax."),
            wrong(
                "Half as large", "In most draws, each head returns its value: it is far smaller."
            ),
            right("Less than a tenth", "A longer key hardly changes a weight near 1."),
        ),
    ),
    "designing": Prediction(
        r"The inputs are $u_d + u_b$, $u_c + u_b$ and $u_a$; the vector $u_b$ has length $\beta$. "
        "How near does a weighted average of the inputs come to $u_b$?",
        (
            wrong("As near as one likes", "The other parts of the inputs can't cancel."),
            right(r"To $0.63 \beta$, not nearer", r"It is $\sqrt{0.4} \beta$, with three weights."),
            wrong(r"To $\beta$, not nearer", r"Either input alone is at this distance."),
        ),
    ),
    "products": Prediction(
        "The scores of three states are 1054, 852 and −396. How much weight does softmax give the "
        "second?",
        (
            wrong("Almost half", "Softmax compares exponentials of the scores, not the scores."),
            right("Practically none", "It gets $e^{-202}$ times the weight of the first."),
        ),
    ),
    "masking": Prediction(
        "The score of a key is set to 0 instead of −∞. How much weight does the key get?",
        (
            wrong("None", "Its exponential is 1, not 0."),
            right("About as much as others", "$e^0 = 1$, and the other scores are around 0."),
        ),
    ),
    "projection": Prediction(
        "Keys and values are projected to 6 rows, which is exact without softmax. How accurate are "
        "the same projections inside the softmax?",
        (
            wrong("They are exact, too", "A softmax isn't linear."),
            wrong("The error is some percent", "A projection learned for softmax has 32 %."),
            right("They are useless", "The error is three times the size of the output."),
        ),
    ),
    "approximations": Prediction(
        "Of 1,024 tokens, neighbors are similar. Whose error falls most from 64 to 512 features?",
        (
            right("That of Linformer", "To 6 %: both tokens of a segment are nearly equal."),
            wrong("That of BigBird", "It falls to 18 %."),
            wrong("That of Performer", "It falls to 45 %."),
        ),
    ),
    "block-graph": Prediction(
        "Each of 128 blocks attends to its neighbors, so that the longest path has 127 steps. Each "
        "also gets three random blocks. How long is the longest path then?",
        (
            wrong("2 steps", "That takes a global block, which is next to all others."),
            right("6 steps", "Paths grow as the logarithm of the number of blocks."),
            wrong("About 32 steps", "Each step reaches several times as many blocks as the last."),
        ),
    ),
    "furthest": Prediction(
        "One layer of BigBird finds the furthest vector for 23 % of all vectors. For how many do "
        "32 layers find it, each with other random blocks?",
        (
            wrong("Still for 23 %", "Other blocks are seen, and the best vector so far is kept."),
            right("For 98 %", "Each layer finds a share of the rest."),
            wrong("For all", "A share of the rest always remains."),
        ),
    ),
    "backpropagation-through-time": Prediction(
        "What is the gradient of the second step's loss with respect to the third state?",
        (
            right("0", "No path leads from a later state to an earlier loss."),
            wrong(r"One factor $W_{hh}^\top$", "Such factors lead to earlier states."),
        ),
    ),
    "encoder-gradient": Prediction(
        "An encoder of 24 characters has no attention and isn't trained. How large is the gradient "
        "at the first character, compared with the last?",
        (
            wrong("Equal", "The last state is its only way, through 23 steps."),
            wrong("A third", "That is so with attention."),
            right("Some millionths of it", "Each of 23 steps makes it smaller."),
        ),
    ),
    "bottleneck": Prediction(
        "A vanilla RNN reads a task token and then 12 letters. What does its last state lose?",
        (
            wrong("The task, which was read first", "All letters are in the right case."),
            right("Letters", "The longer the text, the fewer texts are right."),
            wrong("Nothing: 64 numbers are enough", "Most of the longest texts are wrong."),
        ),
    ),
    "probing": Prediction(
        "A network with attention has read a text. Which characters can be read from its last "
        "state?",
        (
            wrong("The first ones", "With attention they are read no better than by a guess."),
            right("The last ones", "As before training: the decoder attends to the others."),
            wrong("All", "It need not contain what the decoder can attend to."),
        ),
    ),
    "roles-of-sequences": Prediction(
        "Without attention, a decoder reads its own output instead of the right answer. Where is "
        "it less often right?",
        (
            wrong("At all characters", "Nothing precedes the first, so it is equal there."),
            right("After the first one", "An error changes what is read next."),
            wrong("Nowhere", "Its state alone doesn't hold the text."),
        ),
    ),
    "encodings": Prediction(
        "One-hot vectors of positions are fixed. Which of the weights that read them does training "
        "change in direction?",
        (
            wrong("None", "A position selects a column of weights, which has a gradient."),
            right("Those of positions in the training texts", "All others get no gradient."),
            wrong("All", "Columns of positions that never occur get no gradient."),
        ),
    ),
    "one-way-or-both": Prediction(
        "A mood is good if two of yesterday, today and tomorrow are sunny. Each is a coin flip. "
        "How often is a network right if it reads no later day?",
        (
            wrong("Half of the time", "If the known days are equal, they decide."),
            right("Three times in four", "It guesses where they differ, half of the time."),
            wrong("Always, after enough training", "Tomorrow is independent of the past."),
        ),
    ),
    "fixed-windows": Prediction(
        "There are 8 symbols and a window of 4 tokens. To which loss does training lead where the "
        "symbol is 8 tokens back?",
        (
            wrong("To 0", "No step of training shows the model that token."),
            wrong("To half of a guess", "Nothing in the window depends on that token."),
            right(r"To $\ln 8 \approx 2.08$", "That of a guess, after any training."),
        ),
    ),
    "permutation": Prediction(
        "A Transformer of two layers has no positions. When does it depend on the order of tokens?",
        (
            wrong("Never", "A causal mask gives each token a different number of keys."),
            right("With a causal mask", "Without one, the states are only permuted."),
        ),
    ),
    "word-order": Prediction(
        "Test sentences come in pairs: who chased whom, and the reverse. How many answers of a "
        "model without positions are right after training?",
        (
            wrong("One in twelve", "Of twelve nouns, two occur in a sentence."),
            right("Half", "It gives both sentences of a pair the same answer."),
            wrong("Nearly all", "No training distinguishes equal inputs."),
        ),
    ),
    "masked-autoencoder": Prediction(
        "Masks replace the words and their positions. How do the predictions at several masks "
        "differ?",
        (
            wrong("By the words around them", "Without positions, no word is around a mask."),
            right("Not at all", "Equal vectors have equal queries and outputs in each layer."),
        ),
    ),
    "free-labels": Prediction(
        "A guess among all characters has a loss of 3.37 nats. Counts of pairs in some 450 "
        "characters predict the next 150. How large is their loss?",
        (
            wrong("3.37: there are no labels", "Each character is the label of the one before."),
            right("2.55", "Even that little text shows which pairs are frequent."),
            wrong("Almost 0", "A character before says only little about the next."),
        ),
    ),
    "gaussian-identity": Prediction(
        "The exponent of the Gaussian kernel is drawn against that of softmax, a dot per pair. "
        "When are all dots on the diagonal?",
        (
            wrong("Always", "The norms of the query and the key are missing."),
            right("With both squared norms added", "The identity is exact."),
            wrong("With many random features", "The identity has none."),
        ),
    ),
    "performer": Prediction(
        "In a trained model with two heads, FAVOR+ with 64 directions replaces softmax. How much "
        "accuracy is lost?",
        (
            wrong("Almost none", "The estimates are bad where attention is sharp."),
            wrong("About a tenth", "That is the largest gap if FAVOR+ is used in training."),
            right("More than two thirds", "The weights were learned for another attention."),
        ),
    ),
    "architectures": Prediction(
        "An encoder and a decoder classify reviews after 300 steps. Which is right more often?",
        (
            wrong("The encoder", "It suits the task, but it learns more slowly here."),
            right("The decoder", "With each of five seeds."),
        ),
    ),
    "different-widths": Prediction(
        "An encoder is half as wide. How many tensors of a decoder of two layers change their "
        "shape?",
        (
            wrong("None", "Keys and values are computed from the encoder's states."),
            right("2", "One per layer: the projection to keys and values."),
            wrong("All", "The decoder's own states keep their width."),
        ),
    ),
    "several-summaries": Prediction(
        "Five summaries of an article are made by each method. By which do they differ most?",
        (
            wrong("Beam search", "The mean ROUGE-L of two is 0.85; of two samples, 0.64."),
            right("Sampling at temperature 1", "And they are worse on average."),
            wrong("Top-k with two tokens", "Two tokens at each step leave few summaries."),
        ),
    ),
    "heads-as-filters": Prediction(
        "Each of 16 positions refers to a random other one. What share of the variance of the "
        "values there does a convolution with a tap for every offset explain?",
        (
            wrong("All", "Which offset is right differs from position to position."),
            right("A sixteenth", "Each offset is the right one that often."),
            wrong("Half", "A tap is right at a sixteenth of the positions."),
        ),
    ),
    "two-heads": Prediction(
        "A head of argmax attention has to name two tokens, each one of 8. How often is it right "
        "at most?",
        (
            wrong("One time in 8", "The choice of a token also depends on the other one."),
            right("One time in 4", "In $2k$ of $k^2$ cases at most, with $k = 8$."),
            wrong("Always, after enough training", "A head passes on one value."),
        ),
    ),
    "pretrained-heads": Prediction(
        "A head of BERT attends to the previous token. The words of each sentence are reversed. "
        "What does it attend to?",
        (
            right("The previous token", "Its queries and keys depend on positions."),
            wrong("The token that used to be previous", "It depends on positions, not on words."),
            wrong("No token in particular", "It gives the previous one 0.97 of its weight."),
        ),
    ),
    "pretrained-decoder": Prediction(
        "Which share of the heads of a pretrained decoder gives the first token more than 0.3 of "
        "its weight?",
        (
            wrong("A tenth", "That is the mean weight in the first layer; later ones have 0.54."),
            wrong("Half", "There are more: the first token is an attention sink."),
            right("Four fifths", "82 % of all heads do. The value of this token adds little."),
        ),
    ),
    "head-patterns": Prediction(
        "How much weight does a small encoder give to later tokens?",
        (
            wrong("None", "A decoder doesn't; an encoder has no causal mask."),
            wrong("A tenth", "It predicts masked words from both sides."),
            right("About half", "Earlier tokens get the other half."),
        ),
    ),
    "two-meanings": Prediction(
        'In two sentences, "play" has the same position and different meanings. From which layer '
        "on do its queries differ?",
        (
            wrong("From the first", "Its input there is the word and the position alone."),
            right("From the second", "The first layer has mixed in the other words."),
            wrong("From the last", "The cosines are lower in the inner layers."),
        ),
    ),
    "structures": Prediction(
        "The best head is compared with the best fixed distance from a word to a related one, such "
        "as the subject of a verb. Where is the distance as good?",
        (
            wrong("Everywhere", "Optional words vary the distances."),
            right("For the previous word", "Elsewhere the head is better by 0.3 or more."),
        ),
    ),
    "three-sentences": Prediction(
        'A small decoder reads "the dogs near the house" and predicts the verb. How much weight '
        "does the best head give to the noun beside the verb?",
        (
            wrong("Most of it", "The verb doesn't agree with this noun."),
            wrong("As much as to the subject", "The subject gets more than two thirds."),
            right("Less than a twentieth", "The subject gets most of the weight."),
        ),
    ),
    "linear-probe": Prediction(
        "There are seven classes of words. How often does a linear probe of an untrained encoder "
        "name the class of a word to which it wasn't fitted?",
        (
            right(
                "About one time in seven", "That is chance: words of a class aren't similar yet."
            ),
            wrong("Half of the time", "Random states of other words of the class are no help."),
            wrong("Nearly always", "That is so after training."),
        ),
    ),
    "untrained": Prediction(
        "A model of width 64 has weights from $N(0, 0.02^2)$. How do its attention weights differ "
        "from uniform ones?",
        (
            right("By a few percent", "Scores have a standard deviation of about 0.025."),
            wrong("Each head prefers other words", "That takes training."),
            wrong("Equal words attend to each other", "Queries and keys are independent."),
        ),
    ),
    "equal-heads": Prediction(
        "Two heads begin with equal weights, in the output projection too. What becomes of them?",
        (
            wrong("Each learns another feature", "Their gradients are equal at every step."),
            right("They stay equal", "The loss of unequal heads is lower, but out of reach."),
        ),
    ),
    "trained-embeddings": Prediction(
        "Before training, products of a word and a position have an eighth of the size of a word's "
        "with itself. What is this ratio after training?",
        (
            wrong("They are as large", "Words grow, and stay nearly orthogonal to positions."),
            right("About a ninth", "The ratio hardly changes."),
        ),
    ),
    "pretraining": Prediction(
        "A model reads a text without the people that it is asked about. How often is it right?",
        (
            wrong("Half as often as with them", "The form of an answer is no help without facts."),
            right("As often as a guess", "The text has no facts about them."),
        ),
    ),
    "recalled": Prediction(
        "Which signal separates answers about people in the text from answers about absent ones?",
        (
            wrong("The answer's text", "All answers are places, in the same form."),
            wrong("The answer's probability", "Invented answers are as probable."),
            right("The familiarity of the name", "Names of the text are far more probable."),
        ),
    ),
    "fallback": Prediction(
        "There are 20 places, independent of names. Which probability do answers about absent "
        "people have on average?",
        (
            wrong("A twentieth", "The model treats names as signs of places."),
            wrong("About a half", "Confidence is higher than that, without any reason."),
            right("More than 0.8", "A guess looks like a fact."),
        ),
    ),
    "bias": Prediction(
        "A place is the answer to a third of the training questions. How often does a model name "
        "it for absent people?",
        (
            wrong("A third of the time", "Its mean probability is about that."),
            right("More than half of the time", "The most probable answer is named each time."),
            wrong("Never", "It depends on frequencies and names alone."),
        ),
    ),
    "capacity": Prediction(
        "A model stores 1.3 bits per parameter after reading each fact 100 times. How many after "
        "1,000 times?",
        (
            wrong("1.3", "The losses still fall with more readings."),
            right("2", "As published for far larger models."),
            wrong("13", "The bits don't grow in proportion to the readings."),
        ),
    ),
    "counterfactual": Prediction(
        "One of five biographies of a person states another birthplace. How often does the model "
        "name that one?",
        (
            wrong("One time in five", "The other four state the old place."),
            right("Hardly ever", "Less than one time in ten, at each of five seeds."),
        ),
    ),
    "reversal": Prediction(
        'A text states "A was born in B" of each person, and training asks in both directions '
        "about others. How often is the model right about who was born in B?",
        (
            right("Never", "The name is never predicted from the place."),
            wrong("Half as often as about birthplaces", "It recalls in the direction read."),
            wrong("As often as about birthplaces", "The text doesn't train this direction."),
        ),
    ),
    "augmentation": Prediction(
        "A model reads five wordings of a biography with permuted facts, or one five times as "
        "often. Questions are mixed in. From which does it recall more?",
        (
            wrong("From one, read more often", "It learns the place from the whole text before."),
            right("From five wordings", "By 0.24 or more, at each of five seeds."),
            wrong("Equally much from both", "The same facts aren't equally easy to retrieve."),
        ),
    ),
    "seen-once": Prediction(
        "A twentieth of the text is repeated ten times. What happens to the share of false "
        "statements?",
        (
            wrong("It grows, with less other text", "All documents are still read."),
            right("It falls", "By more than a tenth of all generated documents."),
            wrong("It stays the same", "Repeated facts are generated more often."),
        ),
    ),
    "span-corruption": Prediction(
        "Texts are truncated to 4 to 112 of 128 characters, each length as likely. How much of a "
        "text is moved to the end, on average?",
        (
            right("A quarter", "14 of 58 characters on average."),
            wrong("A half", "The span has at most half of the text."),
        ),
    ),
    "concepts": Prediction(
        "The first token is changed. In which untrained network does the state 48 tokens later "
        "still change visibly?",
        (
            right("With attention", "Each token is one step away."),
            wrong("In an RNN", "The change shrinks to less than a billionth."),
            wrong("With a window of four tokens", "It ends after four tokens."),
        ),
    ),
    "wrong-options": Prediction(
        "An RNN predicts the next token after each of 16 prefixes. To what do all of its "
        "probabilities sum?",
        (
            wrong("To 1", "Those after one prefix do."),
            right("To 16", "Each prefix has its own distribution."),
        ),
    ),
}
"""Predictions by study: one for each figure without a slider."""
