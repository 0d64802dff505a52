"""What [li2021]_ report: the only numbers in a report that were not measured by the command that writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

CITATION = "Li et al. (2021)"

MODELS = ("DistMult", "SimplE", "ComplEx", "TransE")

#: The settings of section 5.1.4
DIM, EPOCHS, LEARNING_RATE, SEEDS = 200, 2000, 1e-4, 5
NUM_NEGATIVES, BATCH_SIZE, NEGATIVE_WEIGHT = 25, 4000, 1e-3


#: The heads asked for in table 4: genres of “The Notebook” and of “Funny Girl”
QUERIES: Mapping[str, Sequence[tuple[None, str, str]]] = {
    "fb15k237": [
        (None, "/media_common/netflix_genre/titles", "/m/047tsx3"),
        (None, "/media_common/netflix_genre/titles", "/m/02vnmc9"),
    ]
}


#: The columns of table 3, in its order
REPORTED_METRICS = ("MRR", "MR", "Hits@10", "Hits@3", "Hits@1")


class Accuracy(NamedTuple):
    """A row of table 3."""

    mrr: float
    mr: float
    hits_at_10: float
    hits_at_3: float
    hits_at_1: float


#: Table 3, by dataset and model: with 25 sampled negatives, and without sampling
ACCURACY: Mapping[str, Mapping[str, tuple[Accuracy, Accuracy]]] = {
    "fb15k237": {
        "DistMult": (Accuracy(0.177, 430.15, 0.345, 0.198, 0.010), Accuracy(0.227, 361.61, 0.373, 0.248, 0.155)),
        "SimplE": (Accuracy(0.183, 387.90, 0.355, 0.207, 0.099), Accuracy(0.222, 364.31, 0.370, 0.246, 0.159)),
        "ComplEx": (Accuracy(0.240, 529.42, 0.415, 0.271, 0.151), Accuracy(0.243, 326.57, 0.390, 0.256, 0.163)),
        "TransE": (Accuracy(0.178, 337.86, 0.316, 0.192, 0.108), Accuracy(0.261, 336.71, 0.447, 0.296, 0.167)),
    },
    "wn18rr": {
        "DistMult": (Accuracy(0.320, 4019.98, 0.461, 0.371, 0.240), Accuracy(0.411, 7456.29, 0.462, 0.424, 0.384)),
        "SimplE": (Accuracy(0.329, 3950.82, 0.463, 0.378, 0.253), Accuracy(0.406, 7418.31, 0.459, 0.415, 0.377)),
        "ComplEx": (Accuracy(0.390, 4673.35, 0.474, 0.422, 0.339), Accuracy(0.429, 7649.34, 0.485, 0.449, 0.396)),
        "TransE": (Accuracy(0.079, 2900.32, 0.145, 0.084, 0.044), Accuracy(0.156, 3948.07, 0.437, 0.256, 0.007)),
    },
}

#: Table 5, by dataset and model: seconds of 2000 epochs on a GPU with 25 sampled negatives, and without sampling
SECONDS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "fb15k237": {"DistMult": (3546, 53), "SimplE": (4447, 73), "ComplEx": (6736, 157), "TransE": (2353, 107)},
    "wn18rr": {"DistMult": (1922, 57), "SimplE": (2450, 77), "ComplEx": (3346, 158), "TransE": (673, 86)},
}

Curves = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]

DIMENSIONS = (50, 100, 150, 200, 250, 300, 350, 400)

#: Figure 2, by dataset, model and metric
DIMENSION_CURVES: Curves = {
    "fb15k237": {
        "DistMult": {
            "MRR": (0.227, 0.231, 0.233, 0.235, 0.242, 0.242, 0.244, 0.247),
            "Hits@10": (0.350, 0.363, 0.371, 0.375, 0.384, 0.385, 0.388, 0.394),
        },
        "SimplE": {
            "MRR": (0.223, 0.225, 0.226, 0.231, 0.232, 0.232, 0.239, 0.239),
            "Hits@10": (0.352, 0.364, 0.369, 0.374, 0.374, 0.377, 0.382, 0.383),
        },
        "ComplEx": {
            "MRR": (0.221, 0.229, 0.233, 0.237, 0.240, 0.242, 0.243, 0.243),
            "Hits@10": (0.363, 0.374, 0.380, 0.384, 0.390, 0.390, 0.395, 0.397),
        },
        "TransE": {
            "MRR": (0.236, 0.250, 0.257, 0.262, 0.264, 0.265, 0.265, 0.266),
            "Hits@10": (0.396, 0.427, 0.441, 0.447, 0.449, 0.450, 0.450, 0.449),
        },
    },
    "wn18rr": {
        "DistMult": {
            "MRR": (0.300, 0.394, 0.413, 0.422, 0.428, 0.431, 0.433, 0.434),
            "Hits@10": (0.381, 0.440, 0.462, 0.474, 0.486, 0.487, 0.491, 0.494),
        },
        "SimplE": {
            "MRR": (0.298, 0.393, 0.409, 0.411, 0.420, 0.423, 0.427, 0.426),
            "Hits@10": (0.367, 0.426, 0.447, 0.451, 0.463, 0.471, 0.477, 0.478),
        },
        "ComplEx": {
            "MRR": (0.349, 0.407, 0.426, 0.428, 0.433, 0.426, 0.438, 0.439),
            "Hits@10": (0.421, 0.461, 0.480, 0.484, 0.486, 0.495, 0.500, 0.503),
        },
        "TransE": {
            "MRR": (0.144, 0.155, 0.156, 0.155, 0.154, 0.153, 0.151, 0.150),
            "Hits@10": (0.400, 0.433, 0.434, 0.434, 0.433, 0.433, 0.431, 0.431),
        },
    },
}

WEIGHTS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)

#: Figure 3, by dataset, model and metric
WEIGHT_CURVES: Curves = {
    "fb15k237": {
        "DistMult": {
            "MRR": (0.196, 0.210, 0.230, 0.236, 0.230, 0.200),
            "Hits@10": (0.339, 0.355, 0.372, 0.371, 0.360, 0.345),
        },
        "SimplE": {
            "MRR": (0.187, 0.202, 0.228, 0.238, 0.230, 0.194),
            "Hits@10": (0.326, 0.344, 0.374, 0.372, 0.355, 0.295),
        },
        "ComplEx": {
            "MRR": (0.200, 0.213, 0.237, 0.240, 0.242, 0.220),
            "Hits@10": (0.345, 0.363, 0.384, 0.380, 0.370, 0.345),
        },
        "TransE": {
            "MRR": (0.219, 0.248, 0.261, 0.196, 0.085, 0.037),
            "Hits@10": (0.363, 0.418, 0.447, 0.361, 0.208, 0.090),
        },
    },
    "wn18rr": {
        "DistMult": {
            "MRR": (0.409, 0.410, 0.423, 0.410, 0.289, 0.135),
            "Hits@10": (0.442, 0.450, 0.466, 0.470, 0.382, 0.210),
        },
        "SimplE": {
            "MRR": (0.408, 0.408, 0.417, 0.400, 0.270, 0.120),
            "Hits@10": (0.442, 0.441, 0.456, 0.457, 0.351, 0.201),
        },
        "ComplEx": {
            "MRR": (0.166, 0.158, 0.430, 0.450, 0.370, 0.200),
            "Hits@10": (0.166, 0.158, 0.480, 0.500, 0.460, 0.300),
        },
        "TransE": {
            "MRR": (0.084, 0.120, 0.149, 0.156, 0.149, 0.036),
            "Hits@10": (0.156, 0.303, 0.414, 0.437, 0.409, 0.013),
        },
    },
}


class Sweep(NamedTuple):
    """A figure over a parameter."""

    #: the field of a run
    column: str
    symbol: str
    name: str
    values: Sequence[float]
    curves: Curves
    #: whether its axis is logarithmic
    logarithmic: bool


SWEEPS: Mapping[str, Sweep] = {
    "dimension": Sweep("dim", "d", "dimension", DIMENSIONS, DIMENSION_CURVES, False),
    "weight": Sweep("negative_weight", "c⁻", "weight of negatives", WEIGHTS, WEIGHT_CURVES, True),
}
