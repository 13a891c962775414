//! The drawing of a run: both lanes over one scale of bottles, as numbers for `templates/_score.html`. Pure.
//!
//! Everything is drawn once, for the whole run. A step moves the veil over what has not happened yet, the column that marks the
//! step, the ticks that drop into the rack, and the liquid; so a browser can glide from one step to the next by changing those
//! few attributes.

use super::gauge::{FULL, Gauge};
use crate::domain::plan::Plan;
use crate::engine_room::address::Address;
use crate::engine_room::naive::NaiveStep;
use crate::engine_room::report::{day, thousands, time_of_day, verdict};
use crate::engine_room::scenario::Event;
use crate::engine_room::stop::Place;
use crate::engine_room::{Account, Became, Run, Step};

/// Where things stand, in units of the drawing. The two lanes are alike, above and below the row of deliveries.
pub const LEFT: i64 = 64;
pub const RIGHT: i64 = 950;
pub const WIDTH: i64 = 1_200;
pub const HEIGHT: i64 = 616;
const LANE: i64 = 168;
pub const NAIVE_TOP: i64 = 56;
pub const NAIVE_BASE: i64 = NAIVE_TOP + LANE;
pub const TOKEN: i64 = 289;
pub const RACK: i64 = 386;
pub const OURS_TOP: i64 = 401;
pub const OURS_BASE: i64 = OURS_TOP + LANE;
/// The scale, unless an edited script needs more.
const SCALE: i64 = 3_000;
/// With more columns than this, words under the rack would touch.
pub const WORDY: usize = 11;

pub struct Score {
    pub columns: Vec<Column>,
    pub naive: Lane,
    pub ours: Lane,
    pub tear: Option<Tear>,
    pub veil_x: i64,
    pub veil_width: i64,
    /// The words under the rack stand around their column's middle, so their veil begins half a column earlier.
    pub words_x: i64,
    pub words_width: i64,
    /// Many columns: smaller figures.
    pub is_dense: bool,
    pub head_x: i64,
    pub head_width: i64,
    pub counted: usize,
}

/// One delivery.
pub struct Column {
    pub n: usize,
    pub x: i64,
    pub href: String,
    /// Read aloud after what is to be seen, with which the name has to begin.
    pub label: &'static str,
    pub event: &'static str,
    pub symbol: &'static str,
    pub is_copy: bool,
    pub copy: String,
    pub time: String,
    pub day: String,
    pub state: &'static str,
    /// Got past the door.
    pub let_in: bool,
    pub tick: Option<Tick>,
    pub word: &'static str,
    pub naive_y: i64,
    pub naive_over: bool,
    pub ours_y: i64,
}

/// A copy in the rack, or still at its token.
pub struct Tick {
    pub x: i64,
    pub y: i64,
    pub opacity: i64,
}

pub struct Lane {
    pub path: String,
    pub area: String,
    pub limit_y: i64,
    pub axis: Vec<(i64, String)>,
    pub labels: Vec<(i64, i64, String)>,
    pub ribbon: Vec<Plank>,
    pub gauge: Gauge,
    pub small_gauge: Gauge,
    pub plan: &'static str,
    pub balance: String,
    pub verdict: String,
    /// `off`, `fine`, or nothing while it is too early to say.
    pub tone: &'static str,
}

/// A stretch of time on one plan.
pub struct Plank {
    pub x: i64,
    pub width: i64,
    pub plan: &'static str,
    /// Where its name begins, clear of the tear; none if there is no room.
    pub name_x: Option<i64>,
    /// Free, where the customer is owed Pro.
    pub wrong: bool,
}

impl Plank {
    fn place_name(&mut self, tear: Option<i64>) {
        const NAME: i64 = 30;
        let start = self.x + 8;
        let torn = tear.is_some_and(|tear| tear > self.x - 8 && tear < start + NAME + 6);
        let start = if torn { tear.unwrap_or(start) + 12 } else { start };
        self.name_x = (start + NAME <= self.x + self.width).then_some(start);
    }
}

/// Where the process stops.
pub struct Tear {
    pub naive: String,
    /// None where the pipeline had nothing running that could be cut off.
    pub ours: Option<String>,
    pub words: String,
    pub words_x: i64,
    pub anchor: &'static str,
}

impl Score {
    pub fn draw(run: &Run, naive: &[NaiveStep], address: &Address) -> Self {
        let at = address.at_step();
        let grid = Grid { columns: run.steps.len() as i64 };
        let ours: Vec<Account> = run.steps.iter().map(|step| step.pipeline).collect();
        let theirs: Vec<Account> = naive.iter().map(|step| step.account).collect();
        let scale = scale(theirs.iter().chain(&ours));
        let naive_y = |balance: i64| NAIVE_BASE - balance * LANE / scale;
        let ours_y = |balance: i64| OURS_BASE - balance * LANE / scale;
        let columns: Vec<Column> = (0..run.steps.len())
            .map(|index| {
                let (step, became) = (&run.steps[index], run.became(index));
                let x = grid.centre(index as i64);
                let passed = index < at;
                Column {
                    n: step.n,
                    x,
                    href: address.with_step(step.n).query(),
                    label: step.event.words(),
                    event: step.event.name(),
                    symbol: symbol(step.event),
                    is_copy: step.copy > 1,
                    copy: copy_words(step, run.steps.len() > WORDY),
                    time: if run.steps.len() > WORDY { time_of_day(step.at)[..5].to_owned() } else { time_of_day(step.at) },
                    day: if index == 0 || day(run.steps[index - 1].at) != day(step.at) { day(step.at) } else { String::new() },
                    state: if index + 1 == at {
                        "now"
                    } else if passed {
                        "past"
                    } else {
                        "later"
                    },
                    let_in: became.is_some_and(Became::is_let_in),
                    tick: became.filter(|became| became.is_copy()).map(|_| Tick {
                        x: x - 2,
                        y: if passed { RACK - 15 } else { TOKEN },
                        opacity: passed.into(),
                    }),
                    word: became.filter(|_| run.steps.len() <= WORDY).map_or("", Became::word),
                    naive_y: naive_y(theirs[index].balance),
                    naive_over: theirs[index].balance > FULL,
                    ours_y: ours_y(ours[index].balance),
                }
            })
            .collect();
        let veil_x = if at == run.steps.len() { RIGHT } else { grid.centre(at as i64) - 3 };
        let words_x = if at == run.steps.len() { RIGHT } else { grid.centre(at as i64) - grid.width() / 2 };
        let (head_x, head_width) = match at {
            0 => (LEFT, 0),
            at => (grid.centre(at as i64 - 1) - grid.width() / 2, grid.width()),
        };
        let owed = run.script.owed();
        let seen = |accounts: &[Account]| at.checked_sub(1).map_or(crate::engine_room::naive::FRESH, |last| accounts[last]);
        let finished = at == run.steps.len();
        let torn = naive.iter().position(|step| step.stopped).map(|index| grid.centre(index as i64));
        Self {
            counted: columns.iter().filter(|column| column.tick.as_ref().is_some_and(|tick| tick.opacity == 1)).count(),
            tear: tear(run, naive, &grid),
            naive: Lane::draw(
                &grid,
                &theirs,
                &ours,
                scale,
                naive_y,
                Seen::new(seen(&theirs), owed, finished, ["n", "ns"], "naive", torn),
            ),
            ours: Lane::draw(
                &grid,
                &ours,
                &ours,
                scale,
                ours_y,
                Seen::new(seen(&ours), owed, finished, ["o", "os"], "ours", torn),
            ),
            columns,
            veil_x,
            veil_width: RIGHT - veil_x,
            words_x,
            words_width: RIGHT - words_x,
            is_dense: run.steps.len() > WORDY,
            head_x,
            head_width,
        }
    }
}

/// Columns of equal width, and one more half for the way to the bottle.
struct Grid {
    columns: i64,
}

impl Grid {
    fn centre(&self, index: i64) -> i64 {
        LEFT + (RIGHT - LEFT) * (2 * index + 1) / (2 * self.columns + 1)
    }

    fn width(&self) -> i64 {
        2 * (RIGHT - LEFT) / (2 * self.columns + 1)
    }

    fn end_of(&self, index: i64) -> i64 {
        if index + 1 < self.columns { self.centre(index + 1) } else { RIGHT }
    }
}

fn scale<'a>(accounts: impl Iterator<Item = &'a Account>) -> i64 {
    let most = accounts.map(|account| account.balance).max().unwrap_or(0);
    if most <= SCALE { SCALE } else { (most + 999) / 1_000 * 1_000 }
}

/// What is said of the step looked at.
struct Seen {
    account: Account,
    verdict: String,
    tone: &'static str,
    ids: [&'static str; 2],
    liquid: &'static str,
    tear: Option<i64>,
}

impl Seen {
    fn new(
        account: Account,
        owed: Account,
        finished: bool,
        ids: [&'static str; 2],
        liquid: &'static str,
        tear: Option<i64>,
    ) -> Self {
        let (verdict, tone) = match verdict(account, owed) {
            Some(off) if finished || account.balance > FULL => (off, "off"),
            None if finished => ("right".into(), "fine"),
            _ => ("so far".into(), ""),
        };
        Self { account, verdict, tone, ids, liquid, tear }
    }
}

impl Lane {
    fn draw(grid: &Grid, accounts: &[Account], ours: &[Account], scale: i64, y: impl Fn(i64) -> i64, seen: Seen) -> Self {
        let mut before = crate::engine_room::naive::FRESH;
        let mut path = format!("M{LEFT} {}", y(before.balance));
        let mut labels = vec![];
        let mut ribbon =
            vec![Plank { x: LEFT, width: grid.centre(0) - LEFT, plan: before.plan.as_str(), name_x: None, wrong: false }];
        for (index, &account) in (0..).zip(accounts) {
            let (from, to) = (grid.centre(index), grid.end_of(index));
            path.push_str(&format!("H{from}V{}", y(account.balance)));
            if account.balance != before.balance || index == 0 || index + 1 == grid.columns {
                labels.push(((from + to) / 2, y(account.balance) - 7, thousands(account.balance)));
            }
            let wrong =
                account.plan == Plan::Free && ours.get(usize::try_from(index).unwrap_or(0)).is_some_and(|a| a.plan == Plan::Pro);
            match ribbon.last_mut() {
                Some(plank) if plank.plan == account.plan.as_str() && plank.wrong == wrong => plank.width += to - from,
                _ => ribbon.push(Plank { x: from, width: to - from, plan: account.plan.as_str(), name_x: None, wrong }),
            }
            before = account;
        }
        path.push_str(&format!("H{RIGHT}"));
        ribbon.iter_mut().for_each(|plank| plank.place_name(seen.tear));
        let axis = [scale, scale * 2 / 3, scale / 3].map(|value| (y(value), thousands(value)));
        let axis = if scale == SCALE { axis.to_vec() } else { vec![(y(scale), thousands(scale))] };
        Self {
            area: format!("{path}V{}H{LEFT}z", y(0)),
            path,
            limit_y: y(FULL),
            axis,
            labels,
            ribbon,
            gauge: Gauge::new(seen.ids[0], seen.liquid, seen.account.balance),
            small_gauge: Gauge::new(seen.ids[1], seen.liquid, seen.account.balance),
            plan: seen.account.plan.as_str(),
            balance: thousands(seen.account.balance),
            verdict: seen.verdict,
            tone: seen.tone,
        }
    }
}

fn tear(run: &Run, naive: &[NaiveStep], grid: &Grid) -> Option<Tear> {
    let stop = run.script.stop()?;
    let index = naive.iter().position(|step| step.stopped)?;
    let x = grid.centre(index as i64);
    let early = x < (LEFT + RIGHT) / 2;
    Some(Tear {
        naive: zigzag(x, NAIVE_TOP - 6, NAIVE_BASE + 20),
        ours: run.steps.get(index).and_then(|step| step.stopped).map(|_| zigzag(x, OURS_TOP + 22, OURS_BASE + 20)),
        words: format!("the process stops {}", short(stop.place)),
        words_x: if early { x - 6 } else { x + 6 },
        anchor: if early { "start" } else { "end" },
    })
}

fn short(place: Place) -> &'static str {
    match place {
        Place::BeforeStore => "before the store",
        Place::AfterStore => "before the answer",
        Place::HalfWay => "half-way",
        Place::BeforeMark => "before the mark",
    }
}

/// A strip of paper torn out, from top to bottom.
fn zigzag(x: i64, top: i64, bottom: i64) -> String {
    let edge = |side: i64| {
        (0..).map(move |n| (x + side + if n % 2 == 0 { -3 } else { 3 }, top + n * 9)).take_while(move |(_, y)| *y <= bottom)
    };
    let mut points: Vec<(i64, i64)> = edge(-4).collect();
    points.extend(edge(4).collect::<Vec<_>>().into_iter().rev());
    points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}

fn symbol(event: Event) -> &'static str {
    match event {
        Event::Up => "up",
        Event::Pay => "pay",
        Event::Old => "old",
    }
}

fn copy_words(step: &Step, short: bool) -> String {
    match (step.copy, step.resend) {
        (1, _) => String::new(),
        (_, true) => "again".into(),
        (copy, false) if short => format!("×{copy}"),
        (copy, false) => format!("copy {copy}"),
    }
}
