"""Who chose the false-positive rate of a verdict: one that is chosen once the p-value is known proves nothing."""

from dataclasses import dataclass
from typing import Literal

from dgmark.detection.detector import DEFAULT_FPR
from dgmark.detection.results.words import rarity

RateChooser = Literal["service", "request", "default", "person"]


@dataclass(frozen=True)
class ChosenRate:
    """A false-positive rate, and who chose it.

    Attributes:
        fpr: the rate that the verdict is held to.
        service_fpr: the rate of the service that gave the verdict; None if a person did with dgmark.
    """

    fpr: float
    service_fpr: float | None = None

    @property
    def chosen_by(self) -> RateChooser:
        """Whoever runs the service, the request, or the person who made the report: by default, or another rate."""
        if self.service_fpr is None:
            return "default" if self.fpr == DEFAULT_FPR else "person"
        return "service" if self.fpr == self.service_fpr else "request"

    def qualify(self, heading: str) -> str:
        """A heading, with a remark if this is not the rate of the service that it comes from."""
        return heading if self.chosen_by != "request" else f"{heading}, asked at a {self._than} rate than the service's"

    @property
    def sentence(self) -> str:
        """Who chose the rate, and whether that may have been with the result in sight."""
        match self.chosen_by:
            case "service":
                return "The rate is the service's own, set when it was started and not by whoever asked."
            case "request":
                return (
                    f"Whoever asked chose the rate, perhaps knowing the result; it is {self._than} than the "
                    f"service's own, {rarity(self.service_fpr or 1)}."
                )
            case "default":
                return "Whoever made this report kept the default rate of dgmark."
        return "Whoever made this report chose the rate, perhaps knowing the result."

    @property
    def _than(self) -> str:
        return "looser" if self.fpr > (self.service_fpr or 1) else "stricter"
