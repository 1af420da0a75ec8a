package remediate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// noClients and noJournal are of dispatchers whose corrections never reach a member:
// what is tested here is when they are carried out, not how.
type noClients struct{}

func (noClients) Client(string, aggregate.Kind, string) (*Client, error) {
	return nil, errors.New("no member")
}

type noJournal struct{}

func (noJournal) Create(context.Context, *Action) error        { return nil }
func (noJournal) Get(context.Context, string) (*Action, error) { return nil, ErrNoAction }
func (noJournal) Update(context.Context, *Action) error        { return nil }
func (noJournal) List(context.Context) ([]*Action, error)      { return nil, nil }

// schedule is a dispatcher whose corrections are noted.
type schedule struct {
	*Dispatcher

	mu    sync.Mutex
	start time.Time
	done  []string // what was corrected, and when
	acked []string // whose acknowledgements they followed
	phase func(*Intent) (Phase, error)
}

func newSchedule(t *testing.T, opts Options) *schedule {
	t.Helper()
	opts.Clients, opts.Journal = noClients{}, noJournal{}
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &schedule{Dispatcher: d, start: time.Now(), phase: func(*Intent) (Phase, error) { return Succeeded, nil }}
	d.do = func(_ context.Context, i *Intent) (*Action, error) {
		if err := d.counted(i); err != nil {
			return &Action{Intent: *i}, err
		}
		s.mu.Lock()
		s.done = append(s.done, fmt.Sprintf("%s %s@%v", i.Remedy.Target.Member, i.Remedy.Target.Name, time.Since(s.start).Round(time.Second)))
		if by := i.Acknowledged; by != nil {
			s.acked = append(s.acked, by.By+" "+by.Halt)
		}
		s.mu.Unlock()
		phase, err := s.phase(i)
		return &Action{Name: i.name(), Intent: *i, Phase: phase}, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return s
}

// written returns what was corrected since the last call, in order.
func (s *schedule) written() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.done)
	text := strings.Join(s.done, ", ")
	s.done = nil
	return text
}

func (s *schedule) expect(t *testing.T, what, want string) {
	t.Helper()
	if got := s.written(); got != want {
		t.Errorf("%s: corrected %q, want %q", what, got, want)
	}
}

// intents are corrections of ConfigMaps; version is of what was judged.
func intents(version string, targets ...string) []Intent {
	var out []Intent
	for _, t := range targets {
		member, name, _ := strings.Cut(t, " ")
		out = append(out, Intent{
			Binding: "b", UID: "u-" + t, ResourceVersion: version,
			Remedy: policy.Remedy{Action: "patch", Target: aggregate.Ref{Member: member, Kind: "ConfigMap", Namespace: "shop", Name: name}, Patch: []byte(`{"data":{"a":"b"}}`)},
		})
	}
	return out
}

func (s *schedule) want(t *testing.T, c Contract, of int, list []Intent) {
	t.Helper()
	if err := s.Want("b", c, Denominators{Total: of, Members: map[string]int{"m1": of / 2, "m2": of / 2}}, list, true); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsBeingWrittenCountsWhenItIsNotWantedAnyMore: a corrected target clears its
// violation before its correction is known to be done.
func TestWhatIsBeingWrittenCountsWhenItIsNotWantedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{})
		answered := make(chan Phase)
		s.phase = func(*Intent) (Phase, error) { return <-answered, nil }
		c := Contract{Limits: Limits{Policy: Limit{Count: 1}}}
		s.want(t, c, 20, intents("1", "m1 a"))
		synctest.Wait() // a is on its way
		s.want(t, c, 20, intents("1", "m1 b"))
		synctest.Wait()
		st, _ := s.Status("b")
		if st.Halted == nil || st.Halted.Reason != OverLimit {
			t.Fatalf("%+v: b was not held back", st)
		}
		answered <- Failed // nothing was written
		synctest.Wait()
		if err := s.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		answered <- Succeeded
		s.expect(t, "a failed, so that b is the first", "m1 a@0s, m1 b@0s")
		if st, _ := s.Status("b"); st.Halted != nil || st.Budget[0].Targets != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestOverALimitNothingIsWrittenUntilSomebodyAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{})
		c := Contract{Limits: Limits{Policy: Limit{Percent: 10}}}
		s.want(t, c, 20, intents("1", "m1 a", "m1 b", "m2 c"))
		s.expect(t, "three of twenty", "")
		s.Drop("b")
		s.want(t, c, 20, intents("1", "m1 a", "m1 b", "m2 c"))
		s.expect(t, "after a pause", "")
		st, _ := s.Status("b")
		if st.Halted == nil || st.Halted.Reason != OverLimit || st.Halted.Over.Targets != 3 || st.Halted.Over.Most != 2 || st.Pending != 3 {
			t.Fatalf("status %+v", st)
		}
		if err := s.Acknowledge("b", "other", "ann"); !errors.Is(err, ErrNoHalt) {
			t.Errorf("an acknowledgement of another halt: %v", err)
		}
		if err := s.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		s.expect(t, "after the acknowledgement", "m1 a@0s, m1 b@0s, m2 c@0s")
		if want := slices.Repeat([]string{"ann " + st.Halted.ID}, 3); !slices.Equal(s.acked, want) {
			t.Errorf("they follow %q, want %q", s.acked, want)
		}
		// What was acknowledged were three, not four.
		s.want(t, c, 20, intents("2", "m2 d"))
		s.expect(t, "one more", "")
		if st, _ := s.Status("b"); st.Halted == nil {
			t.Error("a fourth target does not halt the policy")
		}
	})
}

func TestWithinTheLimitTargetsCountOnceInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{})
		c := Contract{Limits: Limits{Policy: Limit{Count: 2}, Window: time.Hour}}
		s.want(t, c, 20, intents("1", "m1 a", "m1 b"))
		s.expect(t, "two", "m1 a@0s, m1 b@0s")
		s.want(t, c, 20, intents("2", "m1 a"))
		s.expect(t, "one of them again", "m1 a@0s")
		time.Sleep(61 * time.Minute)
		s.want(t, c, 20, intents("1", "m2 c", "m2 d"))
		s.expect(t, "two others, an hour later", "m2 c@1h1m0s, m2 d@1h1m0s")
	})
}

func TestNothingIsWrittenBeforeAllIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{})
		list := intents("1", "m1 a")
		if err := s.Want("b", Contract{}, Denominators{}, list, false); err != nil {
			t.Fatal(err)
		}
		s.expect(t, "not all counted", "")
		s.want(t, Contract{Suspend: true}, 1, list)
		s.expect(t, "suspended", "")
		s.want(t, Contract{}, 1, list)
		s.expect(t, "counted", "m1 a@0s")
		s.want(t, Contract{}, 1, list)
		s.expect(t, "the same correction again", "")
		s.Drop("b")
		s.want(t, Contract{}, 1, list)
		s.expect(t, "the same after a pause", "")
		s.Forget("b")
		if _, ok := s.Status("b"); ok {
			t.Error("a binding that is forgotten has a status")
		}
	})
}

func TestWavesComeInOrderAfterTheirSoak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := map[string]Health{}
		var mu sync.Mutex
		s := newSchedule(t, Options{Health: func(r aggregate.Ref) Health {
			mu.Lock()
			defer mu.Unlock()
			return health[r.Name]
		}})
		c := Contract{Generation: "1", Waves: []Wave{
			{Name: "canary", Members: map[string]bool{"m1": true}, Soak: 10 * time.Minute, Timeout: 20 * time.Minute},
			{Name: "rest", Members: map[string]bool{"m2": true}, Soak: time.Minute, Timeout: 20 * time.Minute},
		}}
		mu.Lock()
		health["a"] = Progressing
		mu.Unlock()
		s.want(t, c, 20, intents("1", "m1 a", "m2 b", "m3 c"))
		s.expect(t, "at first", "m1 a@0s")
		time.Sleep(9 * time.Minute)
		mu.Lock()
		health["a"] = Healthy
		mu.Unlock()
		s.expect(t, "while it soaks", "")
		if st, _ := s.Status("b"); st.Wave == nil || st.Wave.Phase != WaveSoaking || st.Wave.Name != "canary" || st.Wave.Of != 2 {
			t.Errorf("wave %+v", st.Wave)
		}
		time.Sleep(62 * time.Second)
		s.expect(t, "after the soak", "m2 b@10m0s")
		mu.Lock()
		health["b"] = Degraded
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		st, _ := s.Status("b")
		if st.Halted == nil || st.Halted.Reason != Unhealthy || !strings.Contains(st.Halted.Message, "m2 ConfigMap shop/b is Degraded") {
			t.Errorf("status %+v", st)
		}
		s.expect(t, "members of no wave", "")
		// A new commit begins anew.
		c.Generation = "2"
		if err := s.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		s.want(t, c, 20, intents("2", "m1 a", "m2 b"))
		s.expect(t, "the next generation", "m1 a@12m2s")
	})
}

func TestAWaveThatDoesNotGetWellHaltsThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{Health: func(aggregate.Ref) Health { return Progressing }})
		s.want(t, Contract{Waves: []Wave{{Name: "all", Members: map[string]bool{"m1": true}, Timeout: 5 * time.Minute}}}, 20, intents("1", "m1 a"))
		s.expect(t, "at first", "m1 a@0s")
		time.Sleep(5*time.Minute + 2*time.Second)
		if st, _ := s.Status("b"); st.Halted == nil || st.Halted.Reason != Unhealthy {
			t.Errorf("status %+v", st)
		}
	})
}

func TestAClosedWindowIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01T00:00Z, a Saturday
		s := newSchedule(t, Options{})
		window, err := NewWindow("0 2 * * MON", time.Hour, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		s.want(t, Contract{Window: window}, 20, intents("1", "m1 a"))
		time.Sleep(48*time.Hour + 59*time.Minute)
		s.expect(t, "before Monday, two o'clock in Berlin", "")
		if st, _ := s.Status("b"); st.Waiting != "the window is closed" {
			t.Errorf("waiting %q", st.Waiting)
		}
		time.Sleep(2 * time.Minute)
		s.expect(t, "after it", "m1 a@49h0m0s")
		time.Sleep(time.Hour)
		s.want(t, Contract{Window: window}, 20, intents("1", "m1 b"))
		s.expect(t, "after it has closed", "")
	})
	for _, c := range [][2]string{{"0 2 * *", "UTC"}, {"61 * * * *", "UTC"}, {"* * * * *", "Nowhere/City"}} {
		if _, err := NewWindow(c[0], time.Hour, c[1]); err == nil {
			t.Errorf("a window of %q", c)
		}
	}
	if _, err := NewWindow("* * * * *", 0, "UTC"); err == nil {
		t.Error("a window of no duration")
	}
}

func TestStopKeepsAllFromWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{})
		s.Stop("an incident")
		s.want(t, Contract{}, 20, intents("1", "m1 a"))
		time.Sleep(time.Hour)
		s.expect(t, "stopped", "")
		if st, _ := s.Status("b"); !strings.Contains(st.Waiting, "an incident") {
			t.Errorf("waiting %q", st.Waiting)
		}
		s.Resume()
		s.expect(t, "resumed", "m1 a@1h0m0s")
	})
}

func TestAFollowerWritesNothingUntilItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		lead := errors.New("another process leads")
		s := newSchedule(t, Options{Lead: func() error {
			mu.Lock()
			defer mu.Unlock()
			return lead
		}})
		s.want(t, Contract{}, 20, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		s.expect(t, "as a follower", "")
		mu.Lock()
		lead = nil
		mu.Unlock()
		time.Sleep(time.Second)
		s.expect(t, "as the leader", "m1 a@1m1s")
	})
}

func TestACorrectionThatNeverClearsItsViolationHaltsThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{Fights: 3})
		for i := range 5 { // somebody changes it back, again and again
			s.want(t, Contract{}, 20, intents(fmt.Sprint(i), "m1 a"))
			s.written()
			time.Sleep(time.Minute)
		}
		st, _ := s.Status("b")
		if st.Halted == nil || st.Halted.Reason != Fighting {
			t.Fatalf("status %+v", st)
		}
		if err := s.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		s.expect(t, "after the acknowledgement", "m1 a@5m0s")
	})
}

func TestWritesPerMinuteAndAtOnceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{})
		s.want(t, Contract{Limits: Limits{PerMinute: 2}}, 20, intents("1", "m1 a", "m1 b", "m1 c", "m2 d"))
		time.Sleep(61 * time.Second)
		s.expect(t, "within a minute", "m1 a@0s, m1 b@0s, m1 c@1m0s, m2 d@0s")
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{PerMember: 2})
		var mu sync.Mutex
		now, most := 0, 0
		s.Dispatcher.do = func(_ context.Context, i *Intent) (*Action, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return &Action{Intent: *i, Phase: Succeeded}, nil
		}
		s.want(t, Contract{}, 20, intents("1", "m1 a", "m1 b", "m1 c", "m1 d", "m1 e"))
		time.Sleep(10 * time.Second)
		if st, _ := s.Status("b"); st.Phases[Succeeded] != 5 || most != 2 {
			t.Errorf("%d at once, status %+v", most, st)
		}
	})
}

func TestWhatFailsIsTriedAgainLaterAndHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{Retry: time.Minute})
		s.phase = func(i *Intent) (Phase, error) {
			switch {
			case i.Remedy.Target.Name == "a" && time.Since(s.start) < 90*time.Second:
				return Failed, nil
			case i.Remedy.Target.Name == "b" && time.Since(s.start) < 30*time.Second:
				panic("a mistake of ours")
			case i.Remedy.Target.Name == "c":
				return Contended, nil
			}
			return Succeeded, nil
		}
		s.want(t, Contract{}, 20, intents("1", "m1 a", "m1 b", "m1 c", "m1 d"))
		time.Sleep(5 * time.Minute)
		s.expect(t, "in five minutes", "m1 a@0s, m1 a@1m0s, m1 a@2m0s, m1 b@0s, m1 b@1m0s, m1 c@0s, m1 d@0s")
		if st, _ := s.Status("b"); st.Phases[Succeeded] != 3 || st.Phases[Contended] != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestARestoredHaltHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, Options{})
		s.Restore("b", &Halt{ID: "x", Reason: Unhealthy, Message: "before the restart", Since: time.Now()})
		s.want(t, Contract{}, 20, intents("1", "m1 a"))
		s.expect(t, "restored", "")
		if err := s.Acknowledge("b", "x", "ann"); err != nil {
			t.Fatal(err)
		}
		s.expect(t, "acknowledged", "m1 a@0s")
		// An acknowledgement is of one window.
		time.Sleep(time.Hour)
		s.want(t, Contract{}, 20, intents("2", "m1 b"))
		s.expect(t, "an hour later", "m1 b@1h0m0s")
		if !slices.Equal(s.acked, []string{"ann x"}) {
			t.Errorf("acknowledged: %q", s.acked)
		}
	})
}

func TestOptionsOfTheDispatcherAreHeldToTheirBounds(t *testing.T) {
	for name, opts := range map[string]Options{
		"clients":   {Journal: noJournal{}},
		"journal":   {Clients: noClients{}},
		"fleet":     {Clients: noClients{}, Journal: noJournal{}, Fleet: Limit{Count: -1}},
		"perMember": {Clients: noClients{}, Journal: noJournal{}, PerMember: -1},
		"retry":     {Clients: noClients{}, Journal: noJournal{}, Retry: -1},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s, err := New(Options{Clients: noClients{}, Journal: noJournal{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Want("b", Contract{Limits: Limits{PerMinute: -1}}, Denominators{}, nil, true); err == nil {
		t.Error("a contract with a negative rate")
	}
}
