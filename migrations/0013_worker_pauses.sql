-- Workers that pause because this release fails every event alike. A row is there while its worker is paused and is touched at
-- each probe, so one whose process went away is told from one that still waits. Written by the room `worker`, read by the
-- alerts and the operators' pages.
create table worker_pauses (
    worker      uuid        primary key,
    fingerprint text        not null,
    since       timestamptz not null,
    seen_at     timestamptz not null
);
