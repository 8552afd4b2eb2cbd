"""Mazes, completion, CIFAR-10, language, sequences and control from reward."""

from __future__ import annotations

from functools import partial

from toreqprop.bench import completion_report, maze_credit, maze_nudges, maze_study, sequences
from toreqprop.bench.cifar import report as cifar_report
from toreqprop.bench.language import report as language_report
from toreqprop.bench.reward import report as reward_report

from .sources import RESULTS, Lines, measured


def mazes_table() -> Lines:
    """Exact test mazes of every size: the map by each method, and the controls."""
    return maze_study.render_markdown(maze_study.load(RESULTS / "mazes.json")).splitlines()


def mazes_sentences() -> Lines:
    """What of the claims holds on every seed of EP, and what it took."""
    return maze_study.sentences(maze_study.load(RESULTS / "mazes.json"))


_completion = partial(measured, "completion.json", "completion")
_reward = partial(measured, "reward.json", "reward")
_pure = partial(measured, "cifar10.json", "cifar")
_hybrid = partial(measured, "cifar10_hybrid.json", "cifar --network hybrid")
_language = partial(measured, "language.json", "language")
_CIFAR = "![Loss and accuracy in training by EP and by backprop](figures/{}.svg)"

BLOCKS = {
    "mazes": mazes_table,
    "mazes-claims": mazes_sentences,
    "mazes-trials": measured("mazes_search.jsonl", "mazes --search", maze_study.render_trials),
    "mazes-nudges": measured(
        "maze_nudges.json",
        "mazes --nudges results/maze_nudges.json",
        lambda found: maze_nudges.render_markdown(found).splitlines(),
    ),
    "mazes-credit": measured(
        "maze_credit.json",
        "mazes --credit results/maze_credit.json",
        lambda found: maze_credit.render_markdown(found).splitlines(),
    ),
    "completion-psnr": _completion(lambda report: completion_report.table(report, "psnr")),
    "completion-class": _completion(lambda report: completion_report.table(report, "accuracy")),
    "completion-networks": _completion(completion_report.networks),
    "completion-claims": _completion(completion_report.sentences),
    "completion-points": _completion(completion_report.points),
    "completion-distances": _completion(completion_report.distances),
    "reward": _reward(
        reward_report.table_lines,
        "![Learning curves of policies by EP and by backprop](figures/reward.svg)",
    ),
    "reward-gaps": _reward(reward_report.gap_lines),
    "reward-relaxations": _reward(reward_report.relaxation_lines),
    "reward-checks": _reward(reward_report.check_lines),
    "reward-search": measured("reward_search.json", "reward --search", reward_report.search_lines),
    "cifar10": _pure(cifar_report.table_lines, _CIFAR.format("cifar10")),
    "cifar10-checks": _pure(cifar_report.check_lines),
    "cifar10-certificates": _pure(cifar_report.certificate_lines),
    "cifar10-epochs": _pure(cifar_report.epoch_lines),
    "cifar10-plan": _pure(cifar_report.plan_lines),
    "cifar10-search": measured("cifar10_search.jsonl", "cifar --search", cifar_report.search_lines),
    "cifar10-hybrid": _hybrid(cifar_report.table_lines, _CIFAR.format("cifar10_hybrid")),
    "cifar10-hybrid-checks": _hybrid(cifar_report.check_lines),
    "cifar10-hybrid-shares": _hybrid(cifar_report.share_lines),
    "cifar10-hybrid-certificates": _hybrid(cifar_report.certificate_lines),
    "language": _language(
        language_report.table_lines,
        "![Bits per character by EP, implicit gradient and backprop](figures/language.svg)",
    ),
    "language-gaps": _language(language_report.gap_lines),
    "language-checks": _language(language_report.check_lines),
    "language-certificates": _language(language_report.certificate_lines),
    "language-settling": _language(language_report.settling_lines),
    "language-samples": _language(language_report.sample_lines),
    "language-text": _language(language_report.text_lines),
    "sequences": measured("sequences.json", "sequences", sequences.render_markdown),
    "language-search": measured(
        "language_search.jsonl", "language --search", language_report.search_lines
    ),
}
