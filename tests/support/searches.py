"""A settings file as `dgmark-lab tune` writes it, with all that a search tried."""

from dgmark.decode.settings_file import Frontier, Point, TunedSettings


def searched(*, code_length: int = 16) -> TunedSettings:
    """Settings of the storyteller that meet the goal, another point with as many texts, and one that was given up."""
    points = [
        Point(
            code_length=code_length,
            decoding={"temperature": temperature, "guard": guard, "lookahead": lookahead},
            texts=texts,
            diversity=diversity,
            perplexity=perplexity,
            bits=bits,
            found=found,
            diversity_error=0.01,
            log_perplexity_error=0.02,
            meets_goal=perplexity <= 1.05,
        )
        for temperature, guard, lookahead, texts, diversity, perplexity, bits, found in (
            (0.6, 0.0, 3, 32, 1.01, 1.04, 0.25, 0.97),
            (0.7, 0.05, 1, 32, 1.03, 1.12, 0.2, 0.9),
            (1.0, 0.0, 1, 4, 1.1, 1.5, 0.3, 1.0),
        )
    ]
    return TunedSettings(
        model="storyteller",
        code_length=code_length,
        decoding={"temperature": 0.6, "guard": 0.0, "lookahead": 3, "lookahead_proposals": "kept"},
        measured={
            "texts": 32,
            "tokens": 200,
            "rate": 1e-4,
            "judge": "builtin",
            "diversity": 1.01,
            "perplexity": 1.04,
            "bits": 0.25,
            "found": 0.97,
            "meets_goal": True,
        },
        frontier=Frontier(
            unmarked={"temperature": 1.0, "guard": 0.0, "lookahead": 1},
            least_diversity=1.0,
            most_perplexity=1.05,
            points=points,
        ),
    )
