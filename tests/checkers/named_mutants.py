"""Wrong products that somebody might well have written: each leaves out one rule of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.checkers.mutant_sources import Mutant, diff_of, path_of

Edit = tuple[str, str, str]
"""A module, the text that is there, and the text that stands there instead."""

_FOLD, _NEXT, _LOG, _COMMITTER = "protocol.fold", "protocol.next_record", "stores.log", "engine.committer"
_RECOVER, _INGEST, _STAGING = "engine.recover", "engine.ingest", "stores.staging"
_RENAME, _PUBLISHING = "steps.rename", "steps.publishing"

_EFFECTS = "        outcomes: Outcomes[SequenceName] = yield Execution(loaded, verify_first=verify_first)\n"
_CLEANED_UP = "        remove_task_output(self._settings, self._bucket, list(self._open._plans.values()))\n"
_SEALED = "        require_fence(fold, settings.epoch, self._log.folder)\n"

NAMED: dict[str, tuple[str, Sequence[Edit]]] = {
    "seal-after-the-first-step": (
        "each sequence's first step is executed before the sequence is sealed",
        [
            (
                _COMMITTER,
                "        settings = self._settings\n        fold = yield from",
                "        for early in sequences:\n"
                "            for step in list(load_steps(early.steps, self._context))[:1]:\n"
                "                step.execute()\n"
                "        settings = self._settings\n        fold = yield from",
            )
        ],
    ),
    "target-exists-is-done": (
        "whatever is at a step's target is taken for its proof",
        [
            (
                _RENAME,
                "        if published is not None and not self._is_ours(self.target, published):\n",
                "        if published is not None:\n            return Verdict.DONE\n"
                "        if published is not None and not self._is_ours(self.target, published):\n",
            )
        ],
    ),
    "act-on-the-put": (
        "a put that succeeds counts, without a look at the fold",
        [
            (
                _LOG,
                "            else:\n                unknown = refused = 0\n",
                "            else:\n                unknown = refused = 0\n"
                "                self._step(number, Segment(self.epoch, self._writer_id, record), fold)\n"
                "                return fold\n",
            )
        ],
    ),
    "no-closed-epoch": (
        "a dataset that was sealed and closed in an epoch may be sealed in it again",
        [(_FOLD, "                    closed_epoch=record.epoch,\n", "")],
    ),
    "watermark-without-compare": (
        "a sequence is sealed whatever the stored watermark is",
        [(_FOLD, " and state.watermark == low\n", "\n")],
    ),
    "watermark-before-publishing": (
        "with at-least-once, watermarks move before what they stand for is published",
        [
            (
                _COMMITTER,
                "        outcomes: Outcomes[SequenceName] = yield Execution(steps)\n",
                "        yield from self._seal(sequences)\n"
                "        outcomes: Outcomes[SequenceName] = yield Execution(steps)\n",
            )
        ],
    ),
    "clean-up-before-done": (
        "task output is cleaned up once steps are executed, before DONE",
        [
            (
                _COMMITTER,
                "        fold = yield from self._close(done)\n",
                "        urns = {name.dataset_urn for name in done}\n"
                "        mine = [plan for urn, plan in self._open._plans.items() if urn in urns]\n"
                "        remove_task_output(self._settings, self._bucket, mine)\n"
                "        fold = yield from self._close(done)\n",
            )
        ],
    ),
    "clean-up-of-the-unsealed": (
        "task output of a dataset is cleaned up as soon as it is sealed",
        [(_COMMITTER, _EFFECTS, _CLEANED_UP + _EFFECTS)],
    ),
    "done-before-effects": (
        "sequences are closed before their steps are executed",
        [
            (
                _COMMITTER,
                _EFFECTS,
                "        yield from self._close([_name(sequence) for sequence in sequences])\n" + _EFFECTS,
            )
        ],
    ),
    "no-fence-for-intent": (
        "a run that was fenced may still seal",
        [
            (_FOLD, "_not_newest(record.epoch, fold) or _unfit(record, fold)", "_unfit(record, fold)"),
            (_NEXT, " if open_now and fold.fence_epoch == epoch else None", " if open_now else None"),
            (_COMMITTER, _SEALED, ""),
            (
                _COMMITTER,
                "        require_fence(fold, self._settings.epoch, self._log.folder)\n        self._clean_up",
                "        self._clean_up",
            ),
        ],
    ),
    "no-fence-for-done": (
        "a run that was fenced may still close",
        [
            (
                _FOLD,
                "_not_newest(record.epoch, fold) or _not_all(record.sequences, fold, (PENDING, QUARANTINED))",
                "_not_all(record.sequences, fold, (PENDING, QUARANTINED))",
            ),
            (
                _COMMITTER,
                "        require_fence(fold, self._settings.epoch, self._log.folder)\n        return fold\n",
                "        return fold\n",
            ),
        ],
    ),
    "fence-by-number": (
        "a run takes the job log's newest fence for its own, whoever put it",
        [
            (
                _NEXT,
                "    if fold.fence_epoch != begun_at or fold.fence_run_id == run_id:\n",
                "    if fold.fence_epoch != begun_at:\n",
            ),
            ("stores.fencing", "    if fold.fence_run_id != run_id:\n", "    if fold.fence_epoch == 0:\n"),
        ],
    ),
    "no-replay": (
        "what older runs sealed is not replayed before planning",
        [(_RECOVER, "        if fold.pending():\n", "        if False:\n")],
    ),
    "held-without-decision": (
        "held sequences are executed though nobody decided that they are",
        [(_COMMITTER, "s.held and s.sequence is not None and s.sequence.epoch not in decided_epochs", "False")],
    ),
    "drop-without-own-fence": (
        "held sequences are dropped on a view of the job log without the run's own fence",
        [(_RECOVER, "if (fold.fence_epoch, fold.fence_run_id) != (settings.epoch, settings.run_id):\n", "if False:\n")],
    ),
    "checkpoint-forgets-decisions": (
        "a checkpoint keeps no decisions",
        [
            (
                _FOLD,
                "            tuple(sorted(epoch for epoch in self.decided_epochs if epoch >= decided_from)),\n",
                "            (),\n",
            )
        ],
    ),
    "sweep-whatever-is-pending": (
        "task output of older runs is swept whether or not its sequences are done",
        [(_STAGING, "if older < epoch and older not in kept]", "if older < epoch]")],
    ),
    "lost-is-done": (
        "a step of which neither source nor target is there is taken for done",
        [
            (
                _RENAME,
                '        return Lost(f"{self._identity()} at {self.source} or {self.target}", "neither is there")\n',
                "        return Verdict.DONE\n",
            )
        ],
    ),
    "lost-is-executed": (
        "a LOST step does not stop its sequence",
        [
            ("steps.execution", "                outcomes.lost.setdefault(name, answer)\n", "                pass\n"),
            (_RENAME, "        elif isinstance(answer, Lost):\n", "        elif False:\n"),
        ],
    ),
    "row-before-sync": (
        "task states are published while the staged files they name are not synced",
        [(_INGEST, "            self._fs.sync_tree(self._store.roots.staging)\n", "            pass\n")],
    ),
    "list-once-fold": (
        "a fold counts without a listing made after its last read",
        [
            (
                _LOG,
                "            if missing is not None:\n                self._fold = None\n",
                "            if missing is None and self._fold is not None:\n                return self._fold\n"
                "            if missing is not None:\n                self._fold = None\n",
            )
        ],
    ),
    "genesis-less-log": (
        "a log begins without a segment, so that an emptied one is a new one",
        [
            (
                _LOG,
                '            self._fs.put_if_absent(f"{self.folder}/{segment_name(1)}", encode_segment(genesis))\n',
                "            self._writer_id = genesis.writer_id\n",
            ),
            (
                _LOG,
                "            base_there = self._base in listed\n",
                "            base_there = self._base in listed or self._base == 0\n",
            ),
            (_LOG, "base_there and max(listed) <= self._last", "base_there and max(listed, default=0) <= self._last"),
            (
                _LOG,
                "        number = max(listed, default=1)\n        while True:\n",
                "        number = max(listed, default=0)\n        while number > 0:\n",
            ),
        ],
    ),
    "set-leaves-closed-epoch": (
        "a watermark set by hand does not stop a plan that was made before it",
        [(_FOLD, "        closed_epoch=max(fold.state_of(urn).closed_epoch, fold.fence_epoch),\n", "")],
    ),
    "ended-taken-for-granted": (
        "the drain takes ingest for ended without a look",
        [
            (
                _INGEST,
                "committer.sweep(ended=ingest_ended(store.fs, store.roots.store, settings.run_id))",
                "committer.sweep(ended=True)",
            )
        ],
    ),
    "sync-only-what-moved": (
        "folders of steps that are found done already are not synced before DONE",
        [
            (
                _PUBLISHING,
                " for group in groups])\n    return batch.errors\n",
                " for group in groups if not verdicts or any(\n"
                "        verdicts[place] is not Verdict.DONE for place in group.places)])\n    return batch.errors\n",
            )
        ],
    ),
    "folder-moved-with-more-in-it": (
        "a staged folder is renamed as a whole though it holds more than its task state says",
        [
            (
                _STAGING,
                "            whole = whole and len(names) == seen - begin\n",
                "",
            ),
            (
                _STAGING,
                "strict=True)) == self._names_in(folder)\n",
                "strict=True)).items() <= self._names_in(folder).items()\n",
            ),
        ],
    ),
    "folder-moved-under-other-names": (
        "a staged folder is renamed as a whole though its files have other names there than they are to have",
        [(_STAGING, "whole and name == final_name and", "whole and")],
    ),
    "folder-moved-on-replay": (
        "replay renames staged folders as a whole, whatever else is in them",
        [(_PUBLISHING, "and names == set(group.final_names(steps))", "and names is not None")],
    ),
    "folder-moved-unseen": (
        "what is in a folder that was renamed as a whole is not looked at",
        [(_PUBLISHING, "group.left = self._missing_in(group)", "group.left = []")],
    ),
    "undo-leaves-zombies-their-files": (
        "an abandoned sequence's targets go before its staged files",
        [
            ("stores.by_hand", "        step.withdraw()\n", "        step.undo()\n"),
            (
                "stores.by_hand",
                "    for step in steps:\n        step.undo()\n    _act",
                "    for step in steps:\n        step.withdraw()\n    _act",
            ),
        ],
    ),
    "quarantine-forgets-its-sequence": (
        "a quarantined sequence is planned anew",
        [
            (
                "engine.planner",
                "known[planned.dataset_urn].status is not DatasetStatus.IDLE",
                "known[planned.dataset_urn].status is DatasetStatus.PENDING",
            )
        ],
    ),
}


def named_mutants(root: Path) -> list[Mutant]:
    """All of them, on the sources below `root`.

    Raises:
        ValueError: if a text to be replaced is not there, exactly once: the product has changed, the mutant must too.
    """
    return [_named(root, name, *NAMED[name]) for name in NAMED]


def _named(root: Path, name: str, description: str, edits: Sequence[Edit]) -> Mutant:
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for module, old, new in edits:
        path = path_of(module)
        before.setdefault(path, (root / path).read_text(encoding="utf-8"))
        source = after.get(path, before[path])
        if source.count(old) != 1:
            raise ValueError(f"named mutant {name}: found {source.count(old)} times, not once, in {path}: {old!r}")
        after[path] = source.replace(old, new)
    diff = "\n".join(diff_of(path, before[path], after[path]) for path in after)
    first = edits[0][0]
    line = before[path_of(first)][: before[path_of(first)].index(edits[0][1])].count("\n") + 1
    return Mutant(f"{first}:{line}:named:{name}", (first, "", "named", name), description, after, diff)
