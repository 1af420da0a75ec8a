package exchange_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
)

// metric returns the sum of a metric's series, of those with a label's value if there is one.
func metric(t testing.TB, c prometheus.Collector, name, value string) (sum float64) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "federator_exchange_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			is := value == ""
			for _, l := range m.GetLabel() {
				is = is || l.GetValue() == value
			}
			if is {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestImporter_ABadStreamIsStaleAndSaysWhy for each way in which one can be bad, and is as told once it is right again.
func TestImporter_ABadStreamIsStaleAndSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		io   exchange.ImporterOptions
		bad  func(*process)
		good func(*process)
		want string // of the reason
		end  string // of the metric
	}{
		"no zstd": {
			bad: func(p *process) {
				p.answer(func(w *http.Response) { w.Body = io.NopCloser(strings.NewReader("nonsense")) })
			},
			want: "magic number", end: "broken",
		},
		"status": {
			bad:  func(p *process) { p.answer(func(w *http.Response) { w.StatusCode, w.Status = 502, "502 Bad Gateway" }) },
			want: "502", end: "broken",
		},
		"end": {
			bad:  func(p *process) { p.answer(func(w *http.Response) { w.Body = io.NopCloser(bytes.NewReader(nil)) }) },
			want: "ended the stream", end: "broken",
		},
		"another process": {
			bad:  func(p *process) { p.id = "impostor"; p.restart() },
			good: func(p *process) { p.id = "a"; p.restart() },
			want: `another process answers there: "impostor"`, end: "broken",
		},
		"a record too large": {
			io:   exchange.ImporterOptions{MaxRecord: 1000},
			bad:  func(p *process) { p.replace(m1, "Pod", "digest", record("x", 1, strings.Repeat("x", 5<<20))) },
			good: func(p *process) { p.replace(m1, "Pod", "digest", record("x", 1, "1"), record("y", 1, "1")) },
			want: "exceed", end: "malformed",
		},
		"too many records": {
			io: exchange.ImporterOptions{MaxRecords: 2},
			bad: func(p *process) {
				p.replace(m1, "Pod", "digest", record("x", 1, ""), record("y", 1, ""), record("z", 1, ""))
			},
			good: func(p *process) { p.replace(m1, "Pod", "digest", record("x", 1, "1"), record("y", 1, "1")) },
			want: "3 records of member fleet/one, at most 2", end: "bound",
		},
		"too many members": {
			io:   exchange.ImporterOptions{MaxMembers: 1},
			bad:  func(p *process) { p.put(m2, m2) },
			good: func(p *process) { p.index.RemoveMember(m2) },
			want: "more than 1 members", end: "bound",
		},
		"too much at once": {
			io:   exchange.ImporterOptions{MaxSection: 1000},
			bad:  func(p *process) { p.replace(m1, "Pod", "digest", record("x", 1, strings.Repeat("x", 1000))) },
			good: func(p *process) { p.replace(m1, "Pod", "digest", record("x", 1, "1"), record("y", 1, "1")) },
			want: "more than 1000 bytes", end: "bound",
		},
		"too much in all": {
			io: exchange.ImporterOptions{MaxBytes: 1000},
			bad: func(p *process) {
				for n := range 2 { // what is there already counts
					p.replace(m1, "Pod", "digest", record("x", 2+n, strings.Repeat("x", 1000)), record("y", 1, ""), record("z", 1, ""), record("w", 1, ""))
					p.tell()
					time.Sleep(20 * time.Millisecond)
				}
			},
			want: "bytes", end: "bound",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.io.Grace = 30 * time.Millisecond
			eo := exchange.ExporterOptions{Heartbeat: 20 * time.Millisecond}
			if strings.HasPrefix(name, "a record") {
				eo.MaxRecord = 64 << 20
			}
			a, i := told(t, eo, c.io)
			c.bad(a)
			a.tell()
			a.proxy.Reset()
			eventually(t, func() string {
				s := i.state(m1, "Pod")
				if s.State != aggregate.Stale || !strings.HasPrefix(s.Reason, "process a: ") || !strings.Contains(i.Status()[0].Reason, c.want) {
					return fmt.Sprintf("%+v, %+v", s, i.Status())
				}
				return ""
			})
			if metric(t, i.Importer, "streams_ended_total", c.end) == 0 {
				t.Errorf("no stream has ended as %s", c.end)
			}
			if metric(t, i.Importer, "stale_members", "") != 1 {
				t.Error("no member is counted as stale")
			}
			if name == "too much in all" {
				return // it has been read
			}
			if a.rewrite.Store(nil); c.good != nil {
				c.good(a)
				a.tell()
			}
			i.equals(a, m1)
		})
	}
}

// answer has answers to stream requests changed.
func (p *process) answer(f func(*http.Response)) {
	g := func(w *http.Response) {
		if strings.HasPrefix(w.Request.URL.Path, exchange.StreamPath) {
			_ = w.Body.Close()
			f(w)
		}
	}
	p.rewrite.Store(&g)
}

// TestImporter_AFlippedByteChangesNothing wherever it is.
func TestImporter_AFlippedByteChangesNothing(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{Heartbeat: 10 * time.Millisecond}, exchange.ImporterOptions{Grace: time.Minute, Backoff: time.Millisecond})
	for k := range 34 {
		n := 3 * k
		a.flips.Store(int64(1 + n))
		if n%2 == 0 {
			a.restart()
		}
		pods := a.scope(m1, "Pod", "")
		pods.Upsert(pods.Item(record("x", 3+n, fmt.Sprint(n))))
		if _, err := pods.Commit(); err != nil {
			t.Fatal(err)
		}
		a.tell()
		i.equals(a, m1)
		eventually(t, func() string {
			if left := a.flips.Load(); left > 0 {
				return fmt.Sprint(left, " bytes are left of ", n)
			}
			return ""
		})
		i.equals(a, m1)
	}
	if noticed := i.broken(); noticed < 12 { // but for those of bits without a meaning, and of streams that end anyway
		t.Errorf("only %v were noticed", noticed)
	}
	if metric(t, i.Importer, "streams_ended_total", "malformed") == 0 || metric(t, i.Importer, "audit_differences_total", "") > 0 {
		t.Error("nothing was malformed, or something was taken")
	}
}

func (i *importing) broken() (n float64) {
	for _, reason := range []string{"broken", "malformed", "disagrees", "bound"} {
		n += metric(i.t, i.Importer, "streams_ended_total", reason)
	}
	return n
}

// TestExchange_WhatNobodyReadsIsNotTold: of an object whose record is the same, but for its resourceVersion.
func TestExchange_WhatNobodyReadsIsNotTold(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{Audit: 30 * time.Millisecond, Grace: time.Minute})
	was := textOf(i.index.Snapshot(), m1)
	x := record("x", 1, "1")
	x.ResourceVersion = "2"
	pods := a.scope(m1, "Pod", "")
	pods.Upsert(pods.Item(x))
	a.forget = func(aggregate.Ref) bool { return true }
	audited := metric(t, i.Importer, "audited_scopes_total", "")
	if _, err := pods.Commit(); err != nil {
		t.Fatal(err)
	}
	before := i.index.Snapshot().Revision()
	a.tell()
	a.restart() // so that all is told again
	eventually(t, func() string {
		if metric(t, i.Importer, "audited_scopes_total", "") < audited+3 || metric(t, i.Importer, "received_states_total", "") < 2 {
			return "it was not audited"
		}
		return ""
	})
	if d := differ(textOf(i.index.Snapshot(), m1), was); d != "" || i.index.Snapshot().Revision() != before {
		t.Error("something has changed", d)
	}
	if metric(t, i.Importer, "audit_differences_total", "")+metric(t, a.exporter.Load(), "missed_changes_total", "") > 0 {
		t.Error("the audit has found something")
	}
}

// TestExporter_ALargeRecordIsOnlyItsScope that others do not know.
func TestExporter_ALargeRecordIsOnlyItsScope(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{MaxRecord: 1000}, exchange.ImporterOptions{})
	a.replace(m1, "Job", "jobs", record("j", 1, ""))
	pods := a.scope(m1, "Pod", "")
	pods.Upsert(pods.Item(record("x", 2, strings.Repeat("x", 1000))))
	if _, err := pods.Commit(); err != nil {
		t.Fatal(err)
	}
	a.tell()
	eventually(t, func() string {
		s := i.state(m1, "Pod")
		if s.State != aggregate.OverBudget || !strings.Contains(s.Reason, "not told by a: ns/x has") || i.state(m1, "Job").State != aggregate.Synced {
			return fmt.Sprint(s)
		}
		return ""
	})
	pods.Upsert(pods.Item(record("x", 3, "small")))
	if _, err := pods.Commit(); err != nil {
		t.Fatal(err)
	}
	a.tell()
	i.equals(a, m1)
}

// TestExporter_CutsWhoDoesNotRead, and goes on with others.
func TestExporter_CutsWhoDoesNotRead(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{Stall: time.Second}, exchange.ImporterOptions{})
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, a.peer().URL+exchange.StreamPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	idle := a.server.Client()
	defer idle.CloseIdleConnections()
	response, err := idle.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	random := rand.NewChaCha8([32]byte{})
	text := make([]byte, 16<<10)
	records := make([]*aggregate.Record, 400) // more than the client makes room for
	for k := range records {
		_, _ = random.Read(text)
		records[k] = record(fmt.Sprint("r", k), 1, hex.EncodeToString(text))
	}
	a.replace(m1, "Pod", "", records...)
	a.tell()
	eventually(t, func() string {
		if metric(t, a.exporter.Load(), "importers_cut_total", "") == 0 {
			return "an importer that does not read was not cut"
		}
		return ""
	})
	i.equals(a, m1)
}

// TestAudit_FindsWhatWasNotTold by a process that does not notice a change.
func TestAudit_FindsWhatWasNotTold(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{Audit: 50 * time.Millisecond})
	a.forget = func(aggregate.Ref) bool { return true }
	pods := a.scope(m1, "Pod", "")
	pods.Upsert(pods.Item(record("x", 2, "forgotten")))
	if _, err := pods.Commit(); err != nil {
		t.Fatal(err)
	}
	a.tell()
	i.equals(a, m1)
	if metric(t, a.exporter.Load(), "missed_changes_total", "") == 0 {
		t.Error("it is not counted")
	}
}

// TestAudit_AsksAgainForWhatDiffers.
func TestAudit_AsksAgainForWhatDiffers(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{Audit: 50 * time.Millisecond, Grace: time.Minute})
	before := i.index.Snapshot().Revision()
	another := func(w *http.Response) {
		if w.Request.URL.Path == exchange.DigestsPath {
			text, _ := io.ReadAll(w.Body)
			_ = w.Body.Close()
			w.Body = io.NopCloser(bytes.NewReader(bytes.Replace(text, []byte(`"records":2`), []byte(`"records":3`), 1)))
		}
	}
	a.rewrite.Store(&another)
	records := metric(t, i.Importer, "received_records_total", "")
	eventually(t, func() string {
		if metric(t, i.Importer, "audit_differences_total", "") == 0 || metric(t, i.Importer, "received_records_total", "") < records+2 || metric(t, i.Importer, "streams_ended_total", "again") == 0 {
			return "nothing was asked for again"
		}
		return ""
	})
	if i.index.Snapshot().Revision() != before || metric(t, i.Importer, "received_states_total", "") != 1 {
		t.Error("what is the same has changed, or all was told again")
	}
}

func TestOptions_AreValidated(t *testing.T) {
	if _, err := exchange.NewExporter(exchange.ExporterOptions{Process: "a"}); err == nil {
		t.Error("an exporter without an epoch")
	}
	if _, err := exchange.NewImporter(exchange.ImporterOptions{Index: newIndex(t)}); err == nil {
		t.Error("an importer without a logger")
	}
}

func TestExporter_RefusesOtherRequests(t *testing.T) {
	a, _ := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{})
	for path, want := range map[string]int{
		exchange.StreamPath + "?since=1":       http.StatusBadRequest,
		exchange.StreamPath + "?since=1.x":     http.StatusBadRequest,
		exchange.DigestsPath + "?member=other": http.StatusNotFound,
		"/exchange/v1/other":                   http.StatusNotFound,
	} {
		response, err := a.client.Get(a.peer().URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPut, exchange.StreamPath, "", http.StatusMethodNotAllowed},
		{http.MethodPost, exchange.DigestsPath, "", http.StatusMethodNotAllowed},
		{http.MethodPost, exchange.StreamPath, "", http.StatusBadRequest},
		{http.MethodPost, exchange.StreamPath, "nonsense", http.StatusBadRequest},
		{http.MethodPost, exchange.StreamPath, "\x0c\xff\xff\xff\xff\x7f", http.StatusBadRequest},
		{http.MethodGet, exchange.DigestsPath + "?member=" + url.QueryEscape(m1) + "&stream=77", "", http.StatusGone},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, a.peer().URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := a.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%s %s %q: %s, want %d", c.method, c.path, c.body, response.Status, c.want)
		}
	}
}

// TestErrors_CanBeToldApart for who logs them.
func TestErrors_CanBeToldApart(t *testing.T) {
	var bad *exchange.MalformedError
	if !errors.As(error(&exchange.MalformedError{Frame: 1}), &bad) || bad.Error() == "" {
		t.Error("not found")
	}
}
