"""The probes against an endpoint, each as often as its answer needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from ..errors import UnbraidError
from .attribution import Witness
from .checks import Fault
from .dialects import DIALECTS
from .exchange import ProbeRequest, VerifyExchange
from .probes import PROBES, TIME, WEATHER, Probe, Trial
from .server import VerifiedServer


@dataclass(frozen=True, slots=True)
class Blamed:
    """A fault, the exchange that shows it, and whose it is."""

    fault: Fault
    exchange: VerifyExchange
    whose: str


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What came of a probe.

    trials: how often it asked.
    telling: how many of these tell something.
    exchanges: how many requests these were.
    """

    name: str
    shows: str
    trials: int
    telling: int
    faults: tuple[Blamed, ...]
    exchanges: int = 0

    @property
    def verdict(self) -> str:
        """ok; failed; model: all that is wrong is what the model wrote; unsure: no trial showed what is looked for."""
        if any(each.whose != "model" for each in self.faults):
            return "failed"
        return "model" if self.faults else "ok" if self.telling else "unsure"

    @property
    def sureness(self) -> str:
        """How sure the verdict is: with n good trials, the share of bad ones is below 1 - 0.05^(1/n), in 95 of 100."""
        if self.faults:
            return f"seen in {len({id(each.exchange) for each in self.faults})} of {self.exchanges} replies"
        if not self.telling:
            return f"not shown in {self.trials} trials"
        return f"{self.telling} of {self.trials} trials tell; faults in less than {1 - 0.05 ** (1 / self.telling):.0%}"


def select(names: Iterable[str] | None, endpoint: VerifiedServer, witness: Witness) -> list[Probe]:
    """The probes of these names that the API has; all of them without names."""
    names = list(names or ())
    probes = PROBES if witness.renderer is None else (*PROBES, _prompt_probe(witness))
    missing = sorted(set(names) - {probe.name for probe in probes})
    if missing:
        choices = ", ".join(probe.name for probe in probes)
        raise UnbraidError(f"there is no probe {missing[0]!r}: choose from {choices} (prompt needs --tokenizer)")
    dialect = next(name for name, each in DIALECTS.items() if each is endpoint.dialect)
    return [probe for probe in probes if dialect in probe.dialects and (not names or probe.name in names)]


def verify(
    endpoint: VerifiedServer,
    *,
    witness: Witness | None = None,
    probes: Iterable[str] | None = None,
    repeat: int = 1,
    tell: Callable[[str], None] = lambda progress: None,
) -> Iterator[ProbeResult]:
    """Run the probes, and yield what came of each.

    witness: tells the model's faults from the parser's.
    repeat: how many times as often as by default each probe asks.
    """
    if repeat < 1:
        raise UnbraidError(f"--repeat is {repeat}: it must be 1 or more")
    witness = witness or Witness()
    chosen = select(probes, endpoint, witness)
    endpoint.meet(ids=witness.can_read)
    for at, probe in enumerate(chosen, 1):
        yield run_probe(probe, endpoint, witness, repeat, partial(_told, tell, f"{at} of {len(chosen)}"))


def _told(tell: Callable[[str], None], place: str, text: str) -> None:
    tell(f"{place}: {text}")


def run_probe(
    probe: Probe, endpoint: VerifiedServer, witness: Witness, repeat: int, tell: Callable[[str], None]
) -> ProbeResult:
    """Ask until enough trials tell something, or until it has asked often enough."""
    trials, telling, exchanges, faults = 0, 0, 0, list[Blamed]()
    while trials < probe.most * repeat and telling < probe.needed * repeat:
        tell(f"{probe.name}, trial {trials + 1}")
        trial = probe.run(endpoint, trials)
        trials += 1
        telling += trial.tells
        exchanges += len(trial.exchanges)
        faults += blamed(trial.faults, trial.exchanges, witness, endpoint)
    return ProbeResult(probe.name, probe.shows, trials, telling, tuple(faults), exchanges)


def blamed(
    faults: Iterable[tuple[Fault, VerifyExchange]],
    exchanges: Iterable[VerifyExchange],
    witness: Witness,
    endpoint: VerifiedServer | None,
) -> Iterator[Blamed]:
    """Whose each fault is; and where nothing else is wrong, whether the reply is what the model wrote."""
    seen = set()
    for fault, exchange in faults:
        seen.add(id(exchange))
        yield Blamed(fault, exchange, witness.blame(fault, exchange, endpoint))
    for exchange in exchanges:
        difference = None if id(exchange) in seen else witness.difference(exchange)
        if difference is not None:
            yield Blamed(difference, exchange, witness.blame(difference, exchange))


def _prompt_probe(witness: Witness) -> Probe:
    """The prompt that the server made, held against the one that the model's template makes."""

    def run(endpoint: VerifiedServer, turn: int) -> Trial:
        tools = ((), (WEATHER, TIME))[turn % 2]
        exchange = endpoint.ask(
            ProbeRequest(text="Grüße aus Köln!", system="Be brief.", tools=tools, max_tokens=16), stream=False
        )
        fault = witness.prompt_fault(exchange)
        faults = () if fault is None else ((fault, exchange),)
        return Trial((exchange,), faults, exchange.reply.prompt_ids is not None)

    return Probe("prompt", "the prompt is what the model's template says", run, most=2, dialects=("chat",))
