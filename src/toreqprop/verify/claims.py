"""Every numbered claim of the list this verification takes its numbers from, and where it stands.

The list is that of the public project "TorEqProp Verification Results" by automenta (2026), 0 to
44, 50 to 57 and 60. A number that has a track here says so by itself; `ELSEWHERE` has the subjects,
in our words, and for numbers without a track where the matter is looked at, or why it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from toreqprop.verify.registry import all_tracks

NUMBERS = (*range(45), *range(50, 58), 60)


@dataclass(frozen=True)
class Claim:
    """What a number claims elsewhere; ``see`` are the tracks that look at it, ``why`` says what is
    left out where it has no track of its own."""

    elsewhere: str
    see: tuple[int, ...] = ()
    why: str = ""


ELSEWHERE: dict[int, Claim] = {
    0: Claim("the framework's own statistics work"),
    1: Claim("spectral normalisation keeps the Lipschitz constant at one or below"),
    2: Claim("EP reaches backprop's accuracy"),
    3: Claim("noise put into the states dies out"),
    4: Claim("ternary weights learn"),
    5: Claim(
        "neurons on a cube's lattice, coupled to their neighbours alone, learn",
        (13,),
        "A lattice is one choice of local couplings, and that it learns says nothing of lattices; "
        "couplings between neighbours are convolutions (track 13) and maps of any size, which the "
        "mazes put to a test that needs many steps.",
    ),
    6: Claim("random feedback weights learn"),
    7: Claim("networks can be made to oscillate"),
    8: Claim(
        "a regulator inside the network keeps it stable",
        (1, 19, 70),
        "A regulator that acts after the fact bounds nothing: norms are bounded at every step "
        "(track 1), or projected after it (track 70), and track 19 shows what lies beyond.",
    ),
    9: Claim("EP's gradient agrees with backprop's"),
    10: Claim(
        "training memory does not depend on depth",
        (26, 71),
        "It does not depend on relaxation steps (track 26); on depth it does (track 71).",
    ),
    11: Claim("a hundred layers pass a signal and learn"),
    12: Claim("updates of settled neurons can be left out"),
    13: Claim("convolutional networks learn by EP"),
    14: Claim("transformers learn by EP"),
    15: Claim("a NumPy kernel trains as PyTorch does"),
    16: Claim("eight bits are enough"),
    17: Claim("analog noise is harmless"),
    18: Claim("learning obeys thermodynamic constraints"),
    19: Claim("networks work best near the edge of chaos"),
    20: Claim("features transfer between tasks"),
    21: Claim("tasks are learnt one after the other without forgetting"),
    22: Claim("kernels agree with a reference"),
    23: Claim("gradients survive depth"),
    24: Claim("lazy updates save time"),
    25: Claim("real data sets are learnt"),
    26: Claim("training memory is constant"),
    27: Claim("extreme depth learns"),
    28: Claim("networks that settle are robust to noisy inputs"),
    29: Claim("the energy falls while a network settles"),
    30: Claim("networks that settle tolerate damage"),
    31: Claim("skip connections keep the signal alive in extreme depth"),
    32: Claim("clamping the class generates inputs"),
    33: Claim("convolutional EP is competitive on CIFAR-10"),
    34: Claim("convolutional EP reaches 75 % on CIFAR-10"),
    35: Claim(
        "with checkpoints memory grows as the root of depth",
        (26, 71),
        "Checkpointing is a way to backpropagate through the relaxation: track 26 measures it "
        "next to EP, which needs none.",
    ),
    36: Claim("the energy detects strange inputs better than softmax"),
    37: Claim("EP matches backprop in language modelling"),
    38: Claim("settling time follows the input's complexity"),
    39: Claim(
        "diffusion works by energy minimisation",
        (32,),
        "There is no diffusion model here, and a denoising error alone would show none; pixels "
        "that relax are track 32.",
    ),
    40: Claim("hardware would profit"),
    41: Claim(
        "three of the others again, quickly: norm, parity, self-healing",
        (1, 2, 3),
        "The three have tracks of their own at three levels.",
    ),
    42: Claim("complex nudges give exact gradients"),
    43: Claim("directed couplings learn"),
    44: Claim("nudges need not be small"),
    50: Claim(
        "spectral normalisation helps every variant of EP",
        (1, 43, 67),
        "Track 1 shows what it does and costs for looped networks, 67 for layered and 43 for "
        "directed ones; that it helps accuracy is not claimed.",
    ),
    51: Claim("spectral normalisation makes feedback alignment deeper"),
    52: Claim("spectral normalisation stabilises direct feedback alignment"),
    53: Claim("spectral normalisation stabilises contrastive Hebbian learning"),
    54: Claim(
        "a signal crosses a thousand layers of Hebbian learning",
        (11, 23, 27),
        "Up to sixty-four layers, with gradients and not signals alone; a thousand were not tried.",
    ),
    55: Claim(
        "linear chains lose the signal whatever the norm",
        (23, 27),
        "A product of matrices of norm below one vanishes: no experiment is needed.",
    ),
    56: Claim(
        "activations keep the signal of deep chains alive",
        (23, 27),
        "Couplings near the identity and weak feedback do, as tracks 23 and 27 measure; a tanh "
        "shrinks what passes it.",
    ),
    57: Claim("an honest account of costs"),
    60: Claim(
        "evolution finds better settings than random search",
        (),
        "There is no evolution here: settings are found by `toreqprop tune`, whose trials are "
        "logged.",
    ),
}


def table() -> list[str]:
    """The index as lines of Markdown."""
    lines = ["| # | Claimed elsewhere | Here |", "|---|---|---|"]
    tracks = all_tracks()
    for number in NUMBERS:
        claim = ELSEWHERE[number]
        if number in tracks:
            here = f"track {number}, {tracks[number].title}: {tracks[number].claim}"
        else:
            seen = ", ".join(f"{n} ({tracks[n].title})" for n in claim.see)
            here = f"no track. {claim.why}" + (f" See {seen}." if seen else "")
        lines.append(f"| {number} | {claim.elsewhere} | {here.replace('|', chr(92) + '|')} |")
    return lines


def own() -> list[str]:
    """Tracks whose numbers are ours, beyond that list."""
    return [
        f"* {number}, {track.title}: {track.claim}"
        for number, track in all_tracks().items()
        if number not in NUMBERS
    ]
