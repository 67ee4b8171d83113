//! What the page makes of answers that are made up: hostile ones, many, none, and the ways to lose and find the server.

use std::time::Duration;

use serde_json::{Value, json};

use crate::chromium::Chromium;
use crate::fake::{Fake, state, wedge};

const LIVE: &str = "document.documentElement.dataset.link === 'live'";
/// Lets a test move the clock of the page.
const CLOCK: &str = "window.ahead = 0; const now = Date.now; Date.now = () => now() + window.ahead;";
const NOTHING_RAN: &str = "window.injected === undefined && document.scripts.length === 1
    && document.querySelectorAll('img,iframe,object,embed,base,script[src],[onerror],[onload]').length === 0";

/// Opens the page over this state; `None`: there is no Chromium.
async fn opened(shown: Value) -> Option<(Chromium, Fake)> {
    let mut browser = Chromium::start().await?;
    let fake = Fake::start(shown);
    browser.before_each_page(CLOCK).await;
    browser.open(&fake.url()).await;
    browser.until(LIVE).await;
    Some((browser, fake))
}

fn two_wedges() -> Value {
    state(&[wedge("tenant-a/web-1", "live-duplicate", 190), wedge("tenant-b/api-2", "stale-endpoint", 25)])
}

/// Every text replaced, each by another one.
fn hostile(value: &mut Value, number: &mut usize) {
    match value {
        Value::String(text) => {
            *number += 1;
            *text = format!(
                "<img src=x onerror=\"window.injected=1\">'\"`${{injected=1}}</td></script><script>window.injected=1</script>\u{202e}\u{7} שלום {number}"
            );
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hostile(value, number)),
        Value::Object(fields) => fields.values_mut().for_each(|value| hostile(value, number)),
        _ => {}
    }
}

#[tokio::test]
async fn text_of_others_is_text_in_every_field() {
    let mut shown = two_wedges();
    hostile(&mut shown, &mut 0);
    let Some((mut browser, fake)) = opened(shown).await else { return };
    for part in
        ["#node", "#mode", "#checks", "#wedges h3", "#wedges tbody", "#acts h3", "#acts li:last-child tbody"]
    {
        browser.says(part, "<img src=x onerror=\"window.injected=1\">").await;
    }
    fake.tell("judged", &json!({"reason": "<img src=x onerror=window.injected=1>"}));
    fake.tell("<script>window.injected=1</script>", &json!("</script><script>window.injected=1</script>"));
    // What may change the order that is seen is not there, and no command is offered for such a pod.
    assert_eq!(
        browser.eval("/[\\u202e\\u0007]/.test(document.body.textContent + document.title)").await,
        false
    );
    assert_eq!(browser.eval("document.querySelectorAll('code.type').length").await, 0);
    // Words that every object has are no words of a verdict.
    let odd = ["__proto__", "constructor", "toString"].map(|verdict| wedge(verdict, verdict, 9));
    fake.set(state(&odd));
    fake.tell("judged", &json!({}));
    browser.says("#wedges", "toString").await;
    browser.until(LIVE).await;
    assert_eq!(browser.eval(NOTHING_RAN).await, true);
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn fields_of_other_kinds_do_not_stop_it() {
    let Some((mut browser, fake)) = opened(two_wedges()).await else { return };
    for odd in [
        json!(null),
        json!(7),
        json!({"a": "b"}),
        json!(["a", {}]),
        json!("2026-99-99T00:00:00Z"),
        json!(true),
    ] {
        let mut shown = two_wedges();
        for (name, value) in shown.as_object_mut().expect("an object") {
            if name != "wedges" {
                *value = odd.clone();
            }
        }
        for (name, value) in shown["wedges"][0].as_object_mut().expect("an object") {
            if name != "podUid" && name != "reason" {
                *value = odd.clone();
            }
        }
        let mark = format!("odd: {odd}");
        shown["wedges"][0]["reason"] = json!(mark);
        fake.set(shown);
        fake.tell("judged", &json!({}));
        browser.says("#wedges", &mark).await;
        browser.until(LIVE).await;
    }
    fake.set(json!({"wedges": [null], "acts": [null], "checks": [null], "remedies": [null]}));
    fake.tell("judged", &json!({}));
    browser.says("#summary", "Nothing is wedged").await;
    fake.set(Value::Null);
    fake.tell("judged", &json!({}));
    browser.says("#link", "its answer cannot be shown").await;
    fake.set(two_wedges());
    browser.until(LIVE).await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn only_its_own_script_runs() {
    let Some((mut browser, _fake)) = opened(two_wedges()).await else { return };
    assert_eq!(browser.complaints().await, [""; 0]);
    let inject = "const script = document.createElement('script'); script.append('window.injected = 1');
        document.body.append(script);
        document.body.insertAdjacentElement('beforeend', Object.assign(document.createElement('img'), {src: '/metrics'}));
        const link = Object.assign(document.createElement('a'), {href: 'javascript:window.injected=1'});
        document.body.append(link);
        link.click();
        await new Promise(done => setTimeout(done, 200)); return window.injected ?? 'not run'";
    assert_eq!(browser.eval(&format!("(async () => {{ {inject} }})()")).await, "not run");
    let markup = "(() => { try { document.body.innerHTML = '<b onclick=1>'; return 'taken' } catch (e) { return e.name } })()";
    assert_eq!(browser.eval(markup).await, "TypeError");
    let elsewhere = "fetch('http://127.0.0.1:9/').then(() => 'sent', e => e.name)";
    assert_eq!(browser.eval(elsewhere).await, "TypeError");
    // The policy is what stopped them, and a test that looks for complaints would find them.
    let said = browser.complaints().await.join("\n");
    for directive in ["TrustedScript", "script-src", "img-src", "connect-src"] {
        assert!(said.contains(directive), "{directive}: {said}");
    }
}

/// Promises the frame that shows other wedges.
const PAINTED: &str = "window.painted = new Promise(done => new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(done));
}).observe(document.getElementById('wedges'), {childList: true})); 0";

#[tokio::test]
async fn two_hundred_wedges_stay_usable() {
    let verdicts = ["stale-endpoint", "live-duplicate", "reserved-holder", "settling"];
    let wedges = (0..200).zip(verdicts.iter().cycle());
    let wedges: Vec<_> =
        wedges.map(|(n, verdict)| wedge(&format!("tenant-{n}/web-{n}"), verdict, 900 - n)).collect();
    let mut shown = state(&wedges);
    shown["wedgesOmitted"] = json!(13);
    let Some((mut browser, fake)) = opened(state(&[])).await else { return };
    browser.size(360, 740).await;
    fake.set(shown.clone());
    browser.eval(PAINTED).await;
    let before = browser.computed().await;
    fake.tell("judged", &json!({}));
    browser.eval("window.painted").await;
    let took = browser.computed().await.saturating_sub(before);
    // More than nothing, or it is no measure.
    assert!(took > Duration::from_millis(1) && took < Duration::from_secs(1), "{took:?} of computing");
    assert_eq!(browser.eval("document.querySelectorAll('#wedges > li').length").await, 200);
    browser.says("#summary", "213 pods wait for an address").await;
    browser.says("#omitted", "13 more").await;
    for width in [360, 800, 1600] {
        browser.size(width, 740).await;
        let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.eval(wider).await, 0, "at {width}");
    }
    // The same again changes nothing in the document but texts.
    let again = "window.changes = 0; new MutationObserver(seen => window.changes += seen.length).observe(
        document.getElementById('wedges'), {childList: true}); window.changes";
    browser.eval(again).await;
    let asked = fake.asked();
    for _ in 0..10 {
        fake.tell("judged", &json!({}));
    }
    browser
        .until(
            "performance.getEntriesByType('resource').filter(it => it.name.endsWith('/v1/state')).length > 2",
        )
        .await;
    assert_eq!(browser.eval("window.changes").await, 0);
    // Ten events at once are no ten requests.
    assert!(fake.asked() - asked <= 3, "{}", fake.asked() - asked);
    let filter = "document.getElementById('filter').value = 'tenant-17/'; document.getElementById('filter').dispatchEvent(new Event('input'))";
    browser.eval(filter).await;
    assert_eq!(
        browser.eval("[...document.querySelectorAll('#wedges > li')].filter(li => !li.hidden).length").await,
        1
    );
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn refused_lost_and_found() {
    let Some((mut browser, fake)) = opened(two_wedges()).await else { return };
    browser.says("#link", "live").await;
    let title = browser.eval("document.title").await;
    assert_eq!(title, "2 wedges · worker-1");
    // The picture stays and says that it is old.
    fake.answers(403, "<b>this token</b> may not get /v1/state");
    fake.tell("judged", &json!({}));
    browser.says("#link", "not allowed: 403 <b>this token</b> may not get /v1/state").await;
    browser.says("#summary", "Not allowed any more").await;
    assert_eq!(browser.eval("document.querySelectorAll('#wedges > li').length").await, 2);
    fake.answers(200, "");
    browser.until(LIVE).await;
    // A stream that is refused is asked for again, and meanwhile the picture is fetched.
    fake.streams_answer(503);
    fake.cut();
    browser.says("#link", "the stream of events was refused").await;
    fake.set(state(&[]));
    browser.says("#summary", "Nothing is wedged").await;
    browser.until("document.title === 'not connected · 0 wedges · worker-1'").await;
    fake.streams_answer(200);
    browser.until(LIVE).await;
    // Neither an answer nor a sign of life.
    fake.hang(true);
    browser.eval("window.ahead = 41000").await;
    browser.says("#link", "the picture is old").await;
    browser.says("#summary", "Not connected").await;
    fake.hang(false);
    browser.until(LIVE).await;
    let complaints = browser.complaints().await;
    let policy = complaints.iter().find(|complaint| !complaint.contains("Failed to load resource"));
    assert_eq!(policy, None);
}

/// WCAG's contrast of each text that is seen with what is behind it; those below 4.5.
const FAINT: &str = "(() => {
    const rgb = text => text.match(/[\\d.]+/g).map(Number);
    const light = color => color.slice(0, 3).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = node => { for (; node; node = node.parentElement) {
        const color = rgb(getComputedStyle(node).backgroundColor); if ((color[3] ?? 1) === 1) return color; }
        return [255, 255, 255]; };
    const faint = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    window.texts = 0;
    while (walk.nextNode()) {
        const node = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || !node.checkVisibility() || ['SCRIPT', 'STYLE'].includes(node.tagName)) continue;
        window.texts += 1;
        const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) faint.push(`${walk.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
    }
    return faint;
})()";

/// What is amiss with the structure.
const AMISS: &str = "(() => {
    const amiss = [], all = selector => [...document.querySelectorAll(selector)];
    if (document.documentElement.lang !== 'en') amiss.push('lang');
    if (all('h1').length !== 1) amiss.push('one h1');
    for (const table of all('table')) {
        if (!table.caption?.textContent.trim()) amiss.push('a table without a caption');
        for (const th of table.querySelectorAll('th')) if (!['row', 'col'].includes(th.scope)) amiss.push(`no scope: ${th.textContent}`);
        if (!table.querySelector('th[scope=col]')) amiss.push('a table without th');
    }
    for (const node of all('button, a, summary')) if (!node.textContent.trim()) amiss.push(`no name: ${node.outerHTML}`);
    for (const input of all('input')) if (!input.labels.length) amiss.push('an input without a label');
    for (const section of all('[aria-labelledby]')) if (!document.getElementById(section.getAttribute('aria-labelledby'))) amiss.push('a label that is not there');
    for (const time of all('time[datetime]')) if (Number.isNaN(Date.parse(time.dateTime))) amiss.push(`no instant: ${time.outerHTML}`);
    const levels = all('h1, h2, h3').map(h => Number(h.tagName[1]));
    if (levels.some((level, i) => level > (levels[i - 1] ?? 0) + 1)) amiss.push(`levels ${levels}`);
    const ids = all('[id]').map(node => node.id);
    if (new Set(ids).size !== ids.length) amiss.push('an id twice');
    const live = all('[aria-live], [role=status], [role=alert]');
    if (live.length !== 1 || live[0].querySelector('*')) amiss.push('more than one line is read out');
    return amiss;
})()";

#[tokio::test]
async fn people_who_do_not_see_it_well_can_use_it() {
    let verdicts = ["live-duplicate", "stale-endpoint", "settling", "reserved-holder"];
    let wedges: Vec<_> = (0..12)
        .zip(verdicts.iter().cycle())
        .map(|(n, verdict)| wedge(&format!("shop/web-{n}"), verdict, 300 - n))
        .collect();
    let Some((mut browser, fake)) = opened(state(&wedges)).await else { return };
    assert_eq!(browser.eval(AMISS).await, json!([]));
    browser.eval("document.querySelectorAll('details').forEach(it => it.open = true)").await;
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await;
        assert_eq!(browser.eval(FAINT).await, json!([]), "{scheme}");
        // It has looked at what is there.
        assert!(browser.eval("window.texts").await.as_u64() > Some(300));
    }
    browser.eval("document.querySelectorAll('details').forEach(it => it.open = false)").await;
    let details = browser
        .eval("[...document.querySelectorAll('summary')].filter(it => it.checkVisibility()).length")
        .await
        .as_u64()
        .expect("a number");
    // Of twelve wedges and of the act that has steps.
    assert_eq!(details, 12 + 1);
    browser.eval("window.reached = new Set(); document.addEventListener('focusin', it => window.reached.add(it.target)); 0").await;
    for _ in 0..details + 2 {
        browser.tab().await;
    }
    let missed = "[...document.querySelectorAll('summary, input')].filter(it => it.checkVisibility() && !window.reached.has(it)).length";
    assert_eq!(browser.eval(missed).await, 0);
    // Others that go and come neither take the focus nor close what is open.
    let open = "(() => { const it = document.querySelectorAll('#wedges details')[5]; it.open = true; it.firstElementChild.focus(); window.mine = it; })()";
    browser.eval(open).await;
    let mut others = vec![wedge("shop/older", "settling", 900)];
    others.extend(wedges.into_iter().skip(2));
    fake.set(state(&others));
    fake.tell("judged", &json!({}));
    browser.says("#wedges", "shop/older").await;
    browser.until("document.querySelectorAll('#wedges > li').length === 11").await;
    browser.until(LIVE).await;
    let stays = "window.mine.isConnected && window.mine.open && document.activeElement === window.mine.firstElementChild";
    assert_eq!(browser.eval(stays).await, true);
}

#[tokio::test]
async fn pictures() {
    if std::env::var_os("STATUS_PAGE_PICTURES").is_none() {
        return;
    }
    let Some((mut browser, fake)) = opened(two_wedges()).await else { return };
    for (name, scheme, width, height) in [
        ("light", "light", 1280, 1000),
        ("dark", "dark", 1280, 800),
        ("wide", "light", 1600, 900),
        ("narrow", "light", 360, 1500),
        ("narrow-dark", "dark", 360, 1500),
    ] {
        browser.size(width, height).await;
        browser.scheme(scheme).await;
        browser.eval("document.querySelectorAll('#wedges details')[0].open = true").await;
        browser.picture(name).await;
    }
    browser.size(1280, 500).await;
    browser.scheme("light").await;
    fake.set(state(&[]));
    fake.tell("over", &json!({}));
    browser.says("#summary", "Nothing").await;
    browser.picture("empty").await;
    fake.answers(403, "system:anonymous may not get /v1/state");
    fake.tell("over", &json!({}));
    browser.says("#link", "not allowed").await;
    browser.picture("denied").await;
}
