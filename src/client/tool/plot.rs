//! A chart of a sweep as SVG: throughput by size, and the latencies of uploads and downloads.
//!
//! Three panels share the horizontal axis, the object size on a logarithmic scale. Colour tells the
//! mode. In the throughput panel solid lines are uploads and dashed ones downloads; in the latency
//! panels solid lines are medians and dashed ones the 99th percentile, with a band between.

use std::fmt::Write as _;
use std::time::Duration;

use super::bench::Outcome;
use super::plan::Mode;
use super::report::size_text;
use super::stats::{Latencies, gigabytes_per_second};

const WIDTH: f64 = 1260.0;
const HEIGHT: f64 = 490.0;
const TOP: f64 = 116.0;
const PANEL_HEIGHT: f64 = 290.0;
const PANEL_WIDTH: f64 = 330.0;
const LEFT: f64 = 70.0;
const STRIDE: f64 = 415.0;
const FONT: &str = "font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\"";

/// A mode's colour, apart also for eyes that do not tell red from green.
fn colour(mode: Mode) -> &'static str {
    match mode {
        Mode::Rdma(_) => "#1d4ed8",
        Mode::Standard => "#c2410c",
    }
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Rdma(crate::client::MemoryKind::Gpu) => "RDMA, GPU memory",
        Mode::Rdma(crate::client::MemoryKind::Host) => "RDMA, host memory",
        Mode::Standard => "standard S3",
    }
}

/// Draws the outcomes. `subtitle` goes under the title.
pub fn draw(outcomes: &[Outcome], subtitle: &str) -> String {
    let mut modes: Vec<Mode> = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for outcome in outcomes {
        if !modes.contains(&outcome.task.mode) {
            modes.push(outcome.task.mode);
        }
        if !sizes.contains(&outcome.task.size) {
            sizes.push(outcome.task.size);
        }
    }
    sizes.sort_unstable();
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" {FONT} font-size=\"12\" fill=\"#1f2937\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"17\" font-weight=\"600\">S3 transfers by object size</text>\n\
         <text x=\"{LEFT}\" y=\"47\" fill=\"#4b5563\">{}</text>\n",
        escape(subtitle)
    );
    legend(&mut svg, &modes);
    let across = Across::new(&sizes);
    throughput(&mut svg, &across, &modes, outcomes);
    latency(&mut svg, &across, &modes, outcomes, 1, "PUT latency", |outcome| &outcome.put);
    latency(&mut svg, &across, &modes, outcomes, 2, "GET latency", |outcome| &outcome.get);
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn legend(svg: &mut String, modes: &[Mode]) {
    let mut x = LEFT;
    for &mode in modes {
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"60\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\n\
             <text x=\"{}\" y=\"71\">{}</text>\n",
            colour(mode),
            x + 18.0,
            name(mode)
        );
        x += 160.0;
    }
}

/// The horizontal axis: sizes on a logarithmic scale.
struct Across {
    sizes: Vec<u64>,
    low: f64,
    high: f64,
}

impl Across {
    fn new(sizes: &[u64]) -> Self {
        let log = |size: Option<&u64>| size.map_or(0.0, |&s| (s.max(1) as f64).log2());
        let (mut low, mut high) = (log(sizes.first()), log(sizes.last()));
        if high - low < 1.0 {
            (low, high) = (low - 1.0, high + 1.0);
        }
        Self { sizes: sizes.to_vec(), low, high }
    }

    fn x(&self, panel: usize, size: u64) -> f64 {
        let part = ((size.max(1) as f64).log2() - self.low) / (self.high - self.low);
        LEFT + STRIDE * panel as f64 + 14.0 + part * (PANEL_WIDTH - 28.0)
    }
}

/// The vertical axis of a panel.
enum Up {
    Linear { high: f64 },
    Log { low: f64, high: f64 },
}

impl Up {
    fn y(&self, value: f64) -> f64 {
        let part = match *self {
            Self::Linear { high } => value / high,
            Self::Log { low, high } => (value.max(1e-9).log10() - low) / (high - low),
        };
        TOP + PANEL_HEIGHT * (1.0 - part.clamp(0.0, 1.0))
    }
}

fn frame(
    svg: &mut String,
    panel: usize,
    title: &str,
    key: &str,
    across: &Across,
    up: &Up,
    ticks: &[(f64, String)],
) {
    let left = LEFT + STRIDE * panel as f64;
    let right = left + PANEL_WIDTH;
    let bottom = TOP + PANEL_HEIGHT;
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{}\" font-weight=\"600\">{title}<tspan dx=\"8\" font-weight=\"400\" fill=\"#4b5563\">{key}</tspan></text>",
        TOP - 8.0
    );
    for (value, label) in ticks {
        let y = up.y(*value);
        let _ = write!(
            svg,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e5e7eb\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#4b5563\">{label}</text>\n",
            left - 8.0,
            y + 4.0
        );
    }
    let _ = writeln!(svg, "<path d=\"M{left},{TOP} V{bottom} H{right}\" fill=\"none\" stroke=\"#6b7280\"/>");
    let mut last = f64::MIN;
    for &size in &across.sizes {
        let x = across.x(panel, size);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\" stroke=\"#6b7280\"/>",
            bottom + 4.0
        );
        // Labels stand aslant and at least this far apart.
        if x - last >= 18.0 {
            last = x;
            let y = bottom + 16.0;
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"end\" fill=\"#4b5563\" transform=\"rotate(-40 {x:.1} {y})\">{}</text>",
                size_text(size)
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#4b5563\">object size</text>",
        (left + right) / 2.0,
        bottom + 72.0
    );
}

fn line(svg: &mut String, points: &[(f64, f64)], colour: &str, dashed: bool) {
    if points.is_empty() {
        return;
    }
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dash = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
        path.join(" ")
    );
    let fill = if dashed { "#ffffff" } else { colour };
    for (x, y) in points {
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }
}

fn throughput(svg: &mut String, across: &Across, modes: &[Mode], outcomes: &[Outcome]) {
    type Side = fn(&Outcome) -> (&Latencies, u64, Duration);
    let sides: [(Side, bool); 2] =
        [(|o| (&o.put, o.put_bytes, o.put_time()), false), (|o| (&o.get, o.get_bytes, o.get_time()), true)];
    let rate = |outcome: &Outcome, side: Side| {
        let (latencies, bytes, time) = side(outcome);
        (!latencies.is_empty()).then(|| gigabytes_per_second(bytes, time))
    };
    let most =
        outcomes.iter().flat_map(|o| sides.iter().filter_map(|(side, _)| rate(o, *side))).fold(0.0, f64::max);
    let (high, step) = round_scale(most);
    let count = (high / step).round() as usize;
    let ticks: Vec<_> = (0..=count).map(|i| (i as f64 * step, tick_text(i as f64 * step, step))).collect();
    let up = Up::Linear { high };
    frame(svg, 0, "Throughput", "GB/s · solid PUT, dashed GET", across, &up, &ticks);
    for &mode in modes {
        for (side, dashed) in sides {
            let points: Vec<_> = of(outcomes, mode)
                .filter_map(|o| Some((across.x(0, o.task.size), up.y(rate(o, side)?))))
                .collect();
            line(svg, &points, colour(mode), dashed);
        }
    }
}

fn latency(
    svg: &mut String,
    across: &Across,
    modes: &[Mode],
    outcomes: &[Outcome],
    panel: usize,
    title: &str,
    side: fn(&Outcome) -> &Latencies,
) {
    let value = |outcome: &Outcome, percent| side(outcome).percentile(percent).as_secs_f64();
    let present = || outcomes.iter().filter(|o| !side(o).is_empty());
    let least = present().map(|o| value(o, 50.0)).fold(f64::MAX, f64::min);
    let most = present().map(|o| value(o, 99.0)).fold(0.0, f64::max);
    let (low, high) = if most > 0.0 {
        let low = least.max(1e-6).log10().floor();
        (low, most.log10().ceil().max(low + 1.0))
    } else {
        (-3.0, 0.0)
    };
    // Between two or three powers of ten, lines at 2 and 5 help to read values.
    let steps: &[u64] = if high - low <= 2.0 { &[1, 2, 5] } else { &[1] };
    let ticks: Vec<_> = (low as i32..=high as i32)
        .flat_map(|power| steps.iter().map(move |&step| (power, step)))
        .filter(|&(power, step)| step == 1 || f64::from(power) < high)
        .map(|(power, step)| (step as f64 * 10f64.powi(power), time_text(step, power)))
        .collect();
    let up = Up::Log { low, high };
    frame(svg, panel, title, "solid p50, dashed p99", across, &up, &ticks);
    for &mode in modes {
        let points = |percent| -> Vec<(f64, f64)> {
            of(outcomes, mode)
                .filter(|o| !side(o).is_empty())
                .map(|o| (across.x(panel, o.task.size), up.y(value(o, percent))))
                .collect()
        };
        let (median, tail) = (points(50.0), points(99.0));
        if !median.is_empty() {
            let outline: Vec<String> =
                median.iter().chain(tail.iter().rev()).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.10\"/>",
                outline.join(" "),
                colour(mode)
            );
        }
        line(svg, &tail, colour(mode), true);
        line(svg, &median, colour(mode), false);
    }
}

/// The outcomes of a mode in the order of their sizes.
fn of(outcomes: &[Outcome], mode: Mode) -> impl Iterator<Item = &Outcome> {
    let mut of: Vec<&Outcome> = outcomes.iter().filter(|o| o.task.mode == mode).collect();
    of.sort_by_key(|o| o.task.size);
    of.into_iter()
}

/// A round end of a linear scale that holds `most`, and the distance of its ticks.
fn round_scale(most: f64) -> (f64, f64) {
    if most <= 0.0 {
        return (1.0, 0.2);
    }
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|m| m * power >= rough).unwrap_or(10.0) * power;
    ((most / step).ceil() * step, step)
}

fn tick_text(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let digits = if (step * 10f64.powi(digits as i32)).fract().abs() > 1e-9 { digits + 1 } else { digits };
    format!("{value:.digits$}")
}

/// `200 µs` for 2 and the power −4.
fn time_text(step: u64, power: i32) -> String {
    let (unit, shift) = match power {
        ..-3 => ("µs", 6),
        -3..0 => ("ms", 3),
        _ => ("s", 0),
    };
    format!("{} {unit}", step * 10u64.pow((power + shift).max(0) as u32))
}

#[cfg(test)]
mod tests {
    use super::super::worker::Task;
    use super::*;
    use crate::client::MemoryKind;
    use test_case::test_case;

    fn outcome(mode: Mode, size: u64, micros: u64) -> Outcome {
        let mut put = Latencies::default();
        let mut get = Latencies::default();
        for i in 0..20 {
            put.record(Duration::from_micros(micros + i * micros / 20));
            get.record(Duration::from_micros(micros / 2 + i * micros / 30));
        }
        Outcome {
            task: Task { mode, size, key_suffix: String::new() },
            workers: 1,
            elapsed: put.sum() + get.sum(),
            put,
            get,
            put_bytes: size * 20,
            get_bytes: size * 20,
            verified: 20,
            mismatches: 0,
            iterations: 20,
            retries: 0,
            fell_back: 0,
            samples: Vec::new(),
        }
    }

    #[test]
    fn every_mode_and_size_is_drawn_and_the_document_is_well_formed() {
        let mut outcomes = Vec::new();
        for i in 0..10 {
            let size = 4096u64 << (2 * i);
            outcomes.push(outcome(Mode::Rdma(MemoryKind::Host), size, 150 + size / 8000));
            outcomes.push(outcome(Mode::Standard, size, 250 + size / 2000));
        }
        let svg = draw(&outcomes, "http://gateway:7070 <test> & more");
        if let Ok(path) = std::env::var("VGWRDMA_TEST_PLOT") {
            std::fs::write(path, &svg).unwrap();
        }
        let mut reader = quick_xml::Reader::from_str(&svg);
        let (mut lines, mut depth) = (0, 0);
        loop {
            match reader.read_event().unwrap() {
                quick_xml::events::Event::Start(_) => depth += 1,
                quick_xml::events::Event::End(_) => depth -= 1,
                quick_xml::events::Event::Empty(e) if e.name().as_ref() == b"polyline" => lines += 1,
                quick_xml::events::Event::Eof => break,
                _ => {}
            }
        }
        // Two modes: PUT and GET throughput, and two percentiles in two latency panels.
        assert_eq!((lines, depth), (12, 0));
        assert!(svg.contains("standard S3") && svg.contains("RDMA, host memory") && svg.contains("1 GiB"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn one_size_and_one_side_are_enough() {
        let mut only = outcome(Mode::Standard, 1000, 500);
        only.get = Latencies::default();
        let svg = draw(&[only], "");
        assert!(!svg.contains("NaN") && svg.contains("1000 B"));
    }

    #[test_case(0.0 => (1.0, 0.2))]
    #[test_case(9.3 => (10.0, 2.0))]
    #[test_case(10.1 => (12.5, 2.5))]
    fn scales(most: f64) -> (f64, f64) {
        round_scale(most)
    }

    #[test_case(1, -6 => "1 \u{b5}s")]
    #[test_case(2, -4 => "200 \u{b5}s")]
    #[test_case(5, -3 => "5 ms")]
    #[test_case(1, -1 => "100 ms")]
    #[test_case(1, 1 => "10 s")]
    fn times(step: u64, power: i32) -> String {
        time_text(step, power)
    }
}
