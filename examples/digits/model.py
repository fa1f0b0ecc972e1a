"""The data and the network: 1,797 real handwritten digits, 8x8 pixels each; one hidden layer; softmax."""
import glob
import gzip

import numpy as np

PIXELS, HIDDEN, CLASSES = 64, 64, 10
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)     # of all parameters, as one flat vector
SEED = 20
TEST_IMAGES = 297
DATA = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv*"


def load_data():
    """(train images, train labels, test images, test labels); the same split in every process.

    The file of python3-sklearn is read directly: importing the library would cost a second at every start.
    """
    for path in sorted(glob.glob(DATA)):
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as file:
            text = file.read().decode("ascii")
        table = np.fromstring(text.strip().replace("\n", ","), dtype=np.float32, sep=",").reshape(-1, PIXELS + 1)
        images, labels = table[:, :PIXELS], table[:, PIXELS].astype(np.int64)
        break
    else:
        from sklearn.datasets import load_digits
        images, labels = load_digits(return_X_y=True)
        images = images.astype(np.float32)
    images = images / 16.0
    order = np.random.default_rng(SEED).permutation(len(images))
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def initial_parameters():
    random = np.random.default_rng(SEED)
    parts = []
    for shape in SHAPES:
        scale = 1.0 / np.sqrt(shape[0]) if len(shape) == 2 else 0.0
        parts.append((random.standard_normal(shape) * scale).astype(np.float32).ravel())
    return np.concatenate(parts)


def shard(index, count):
    """The slice of the flat vector that ps `index` of `count` holds."""
    return slice(SIZE * index // count, SIZE * (index + 1) // count)


def unpack(flat):
    parts, start = [], 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        parts.append(flat[start:start + size].reshape(shape))
        start += size
    return parts


def gradient(flat, images, labels):
    """(mean loss, its gradient as a flat vector) over one batch."""
    w1, b1, w2, b2 = unpack(flat)
    hidden = np.maximum(images @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(odds[rows, labels] + 1e-9).mean())
    odds[rows, labels] -= 1
    odds /= len(labels)
    back = (odds @ w2.T) * (hidden > 0)
    parts = (images.T @ back, back.sum(axis=0), hidden.T @ odds, odds.sum(axis=0))
    return loss, np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def accuracy(flat, images, labels):
    w1, b1, w2, b2 = unpack(flat)
    scores = np.maximum(images @ w1 + b1, 0) @ w2 + b2
    return float((scores.argmax(axis=1) == labels).mean())
