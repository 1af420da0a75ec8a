package clusterinformers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/lateness"
	"federator.dev/federator/pkg/clusterinformers/internal/listwatch"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
	"federator.dev/federator/pkg/clusterinformers/internal/runqueue"
)

func TestOptions_ReportAllErrors(t *testing.T) {
	_, err := New(Options{
		DiscoveryInterval: -1, GiveUpAfter: -1, PingInterval: -1, PingTimeout: -1, ParallelSyncs: -1,
		Kinds: []KindRule{
			{},
			{Kind: "*.*"},
			{Kind: "*apps"},
			{Kind: "Pod", Labels: "a in"},
			{Kind: "Pod", Fields: "x"},
			{Kind: "Pod", Drop: []string{"metadata"}},
			{Kind: "Pod", Drop: []string{"spec..x"}},
			{Kind: "Pod", Drop: []string{"metadata.uid"}},
			{Kind: "Event", TTL: time.Millisecond},
			{Kind: "Event", Share: 101},
		},
		Held: []HeldVersion{{Kind: "Pod"}, {Kind: "Pod", Version: "apps/v1"}},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, says := range []string{
		"Index is required", "Logger is required", "at least one of Sources", "DiscoveryInterval", "GiveUpAfter", "PingInterval", "PingTimeout",
		"ParallelSyncs and Budget", "kinds[0].kind is required", `kinds[1].kind "*.*"`, `kinds[2].kind "*apps"`, "kinds[3].labels", "kinds[4].fields",
		"kinds[5].drop", "kinds[6].drop", "kinds[7].drop", "kinds[8].ttl", "kinds[9].share", "held[0]", "held[1]",
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q is missing in: %v", says, err)
		}
	}
}

func TestOptions_FirstMatchingRuleWins(t *testing.T) {
	for _, tt := range []struct {
		rules []KindRule
		kind  aggregate.Kind
		want  bool
	}{
		{nil, "Pod", true},
		{nil, "Event", false},
		{nil, "Lease.coordination.k8s.io", false},
		{[]KindRule{}, "Pod", false},
		{[]KindRule{{Kind: "*"}}, "Event.events.k8s.io", false},
		{[]KindRule{{Kind: "*.coordination.k8s.io"}}, "Lease.coordination.k8s.io", false},
		{[]KindRule{{Kind: "Event"}}, "Event", true},
		{[]KindRule{{Kind: "*.apps"}}, "Deployment.apps", true},
		{[]KindRule{{Kind: "*.apps"}}, "Pod", false},
		{[]KindRule{{Kind: "Deployment.apps", Exclude: true}, {Kind: "*.apps"}}, "Deployment.apps", false},
		{[]KindRule{{Kind: "*.apps"}, {Kind: "Deployment.apps", Exclude: true}}, "Deployment.apps", true},
	} {
		m := Manager{opts: Options{Kinds: tt.rules}}
		if _, got := m.rule(tt.kind); got != tt.want {
			t.Errorf("%+v keeps %s: %t, want %t", tt.rules, tt.kind, got, tt.want)
		}
	}
}

func TestClassify(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}}
	}
	gr := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		err  error
		want errorClass
	}{
		{io.ErrUnexpectedEOF, connectionFailed},
		{context.DeadlineExceeded, connectionFailed},
		{errors.New("http2: client connection lost"), connectionFailed},
		{apierrors.NewUnauthorized("x"), unauthorized},
		{apierrors.NewForbidden(gr, "", nil), forbidden},
		{apierrors.NewNotFound(gr, ""), notServed},
		{apierrors.NewMethodNotSupported(gr, "watch"), notServed},
		{apierrors.NewResourceExpired("x"), expired},
		{status(410, metav1.StatusReasonGone), expired},
		{apierrors.NewBadRequest("x"), unsupported},
		{status(406, metav1.StatusReasonNotAcceptable), unsupported},
		{apierrors.NewTooManyRequests("x", 1), serverBusy},
		{apierrors.NewInternalError(errors.New("x")), serverBusy},
		{apierrors.NewServiceUnavailable("x"), serverBusy},
		{status(502, ""), serverBusy},
	} {
		if got := classify(tt.err); got != tt.want {
			t.Errorf("classify(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestNewerThanLibrary(t *testing.T) {
	for v, want := range map[string]bool{
		"v1.36.3": false, "v1.28.0-eks-abc": false, "v1.36.0+k3s1": false, "v1.37.0": true, "v2.0.0": true, "": true, "nonsense": true,
	} {
		if got := newerThanLibrary(v); got != want {
			t.Errorf("newerThanLibrary(%q) = %t", v, got)
		}
	}
}

func TestConn_SaysOnceTheMemberIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fixed atomic.Bool
		var connected atomic.Int32
		c := newConn(func(context.Context, *memberclient.Client) error {
			if fixed.Load() {
				return nil
			}
			return errors.New("connection refused")
		}, func() { connected.Add(1) }, new(lateness.Monitor).Prolong)
		ctx, cancel := context.WithCancel(t.Context())
		a := memberclient.New(nil, http.DefaultClient)
		c.setClient(a, nil)
		ended := make(chan struct{})
		go func() { defer close(ended); c.run(ctx) }()
		time.Sleep(time.Minute)
		if c.current() != nil || connected.Load() != 0 {
			t.Fatal("it is said to be within reach, and is not")
		}
		if contact, reason, message, _ := c.state(); contact != connection.Disconnected || reason != connection.Unreachable || message != "connection refused" {
			t.Errorf("%s %s %q", contact, reason, message)
		}
		fixed.Store(true)
		time.Sleep(maxProbeDelay)
		synctest.Wait()
		if c.current() != a || connected.Load() != 1 {
			t.Errorf("%s after the member is back: %v, said %d times", maxProbeDelay, c.current(), connected.Load())
		}
		cancel()
		<-ended
	})
}

// TestConn_ProbesOftenWhileFewMembersAreAway: a member recovers as soon as the way to it does, however
// long it was away. Many share a rate of probes.
func TestConn_ProbesOftenWhileFewMembersAreAway(t *testing.T) {
	for others, bounds := range map[int64][2]int{0: {280, 900}, 2000: {10, 120}} { // delays are drawn
		synctest.Test(t, func(t *testing.T) {
			probes := 0
			c := newConn(func(context.Context, *memberclient.Client) error {
				probes++
				return errors.New("connection refused")
			}, func() {}, new(lateness.Monitor).Prolong)
			c.away.Store(others)
			c.setClient(memberclient.New(nil, http.DefaultClient), nil)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); c.run(ctx) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if probes < bounds[0] || probes > bounds[1] {
				t.Errorf("%d others are away: %d probes in a minute, want %d to %d", others, probes, bounds[0], bounds[1])
			}
			if n := c.away.Load(); n != others+1 {
				t.Errorf("%d members are away, want %d", n, others+1)
			}
			cancel()
			<-ended
			if n := c.away.Load(); n != others {
				t.Errorf("%d members are away after the end, want %d", n, others)
			}
		})
	}
}

// TestConn_ConnectsOnceItIsItsTurn: with what is to be connected to then, and with nothing where
// it was refused meanwhile.
func TestConn_ConnectsOnceItIsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probed []*memberclient.Client
		c := newConn(func(_ context.Context, client *memberclient.Client) error {
			probed = append(probed, client)
			return nil
		}, func() {}, new(lateness.Monitor).Prolong)
		turn, admitted, refused := make(chan struct{}), 0, 0
		c.admit = func(ctx context.Context) error {
			admitted++
			select {
			case <-turn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.refused = func() { refused++ }
		before, after := memberclient.New(nil, http.DefaultClient), memberclient.New(nil, http.DefaultClient)
		c.setClient(before, nil)
		run := func() (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); c.run(ctx) }()
			synctest.Wait()
			return func() { cancel(); <-ended }
		}
		end := run()
		c.setClient(nil, connection.Refuse(connection.Deleting, "refused meanwhile"))
		turn <- struct{}{}
		synctest.Wait()
		if len(probed) != 0 || refused != 1 {
			t.Errorf("%d probes of a member that is refused, its turn was given up %d times", len(probed), refused)
		}
		c.setClient(after, nil)
		synctest.Wait()
		end()
		c.setClient(before, nil)
		run()() // as after a panic
		if len(probed) != 2 || probed[0] != after || probed[1] != before || admitted != 1 || refused != 1 {
			t.Errorf("probed %d times, admitted %d, refused %d", len(probed), admitted, refused)
		}
	})
}

// TestMember_IsGivenUpUnlessItWaitsForItsTurn: one that never gets as far as its turn does not
// keep the process from being ready.
func TestMember_IsGivenUpUnlessItWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{starts: quota.NewSlots(1), queue: runqueue.New(), opts: Options{GiveUpAfter: time.Minute, Logger: slog.New(slog.DiscardHandler)}}
		started, waits, idle := newMember(m, Spec{Name: "a"}), newMember(m, Spec{Name: "b"}), newMember(m, Spec{Name: "c"})
		if _, err := m.starts.Acquire(t.Context(), &started.startSlots); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if m.starts.InUse() != 0 {
			t.Error("a start that makes no progress keeps its turn")
		}
		slot, err := m.starts.Acquire(t.Context(), &started.startSlots)
		if err != nil {
			t.Fatal(err)
		}
		begun := make(chan error)
		go func() { begun <- waits.begin(t.Context()) }()
		synctest.Wait()
		if !idle.givenUp() || waits.givenUp() {
			t.Errorf("given up is the idle one: %t, and the one that waits: %t", idle.givenUp(), waits.givenUp())
		}
		slot.Release()
		if err := <-begun; err != nil || waits.givenUp() {
			t.Errorf("its turn: %v, given up %t", err, waits.givenUp())
		}
		time.Sleep(time.Minute)
		if !waits.givenUp() {
			t.Error("its time does not end")
		}
		waits.endStart()
		waits.endStart()
		if m.starts.InUse() != 0 {
			t.Errorf("%d turns are taken", m.starts.InUse())
		}
	})
}

func TestMember_KeepsItsTurnWhileItMakesProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{starts: quota.NewSlots(1), queue: runqueue.New(), opts: Options{Logger: slog.New(slog.DiscardHandler)}}
		mb := newMember(m, Spec{Name: "a"})
		if err := mb.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			time.Sleep(4 * time.Second)
			mb.progressed()
			if m.starts.InUse() != 1 {
				t.Fatal("a start that makes progress loses its turn")
			}
		}
		time.Sleep(time.Minute)
		if m.starts.InUse() != 0 {
			t.Error("it has its turn for good")
		}
	})
}

func TestOpeners_SendAFewAtATimeAndAllOfAMemberThatIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scopes = 100
		o := newOpeners()
		o.setScopes(scopes)
		var sent, most, now atomic.Int32
		began := time.Now()
		for range scopes {
			o.add(func(turn *turn) {
				if err := turn.begin(t.Context()); err != nil {
					t.Error(err)
				}
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				sent.Add(1)
			})
		}
		o.running.Wait()
		if sent.Load() != scopes || most.Load() != maxOpening {
			t.Errorf("%d were sent, %d at a time", sent.Load(), most.Load())
		}
		if took := time.Since(began); took > (scopes/maxOpening+1)*time.Second {
			t.Errorf("they took %s", took)
		}
	})
}

// TestOpeners_RequestsWithoutAnAnswerDoNotHoldUpOthers: a kind whose conversion or API service
// hangs is not answered for a minute.
func TestOpeners_RequestsWithoutAnAnswerDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpeners()
		o.setScopes(200)
		var now, most atomic.Int32
		hang := func(turn *turn) {
			_ = turn.begin(t.Context())
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(openTimeout)
			now.Add(-1)
		}
		for range maxOpening {
			o.add(hang)
		}
		began, took := time.Now(), time.Duration(0)
		o.add(func(turn *turn) {
			_ = turn.begin(t.Context())
			took = time.Since(began)
		})
		for range 100 {
			o.add(hang)
		}
		o.running.Wait()
		if took != slowAfter {
			t.Errorf("another request waited for %s", took)
		}
		if most.Load() != maxSlow+maxOpening || o.opening != 0 || o.slow != 0 {
			t.Errorf("%d requests at a time; %d and %d slow ones are left", most.Load(), o.opening, o.slow)
		}
	})
}

func TestListWatch_ChargesPagesAsTheyCome(t *testing.T) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/a", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer scope.Close()
	items := make([]*object, 4)
	for i := range items {
		items[i] = &object{item: scope.Item(&aggregate.Record{Namespace: "a", Name: "b", UID: "c", ResourceVersion: "1", Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"a"}}`)})}
	}
	mb := &member{quota: quota.Member{Limits: quota.Limits{Objects: 10, Bytes: 1 << 30}}}
	p := &listWatch{informer: &informer{member: mb, objects: 2}}
	if !mb.quota.Charge(&p.informer.usage, 2, 0) { // 2 are held and charged already
		t.Fatal("2 objects of 10 are not in the budget")
	}
	for n, want := range []error{nil, nil, nil, errOverBudget} { // of 12, 2 take the place of those
		if n == 3 {
			mb.quota.Limits.Objects = 13
		}
		if n == 2 {
			mb.quota.Limits.Objects = 12
		}
		p.request.Continue = strings.Repeat("x", n)
		if err := p.stagePage(&page{items: items}); !errors.Is(err, want) {
			t.Errorf("page %d: %v, want %v", n, err, want)
		}
	}
	p.request.Continue = ""
	if err := p.stagePage(&page{items: items}); err != nil {
		t.Errorf("the first page of another list: %v", err)
	}
	if o, _ := mb.quota.Used(); o != 4 {
		t.Errorf("%d objects are charged, want 4", o)
	}
	p.chargeListed(size{})
	if o, b := mb.quota.Used(); o != 2 || b != 0 {
		t.Errorf("%d objects and %d bytes are left, want what is held", o, b)
	}
}

func TestListWatch_LargeFirstListsWaitForASlotForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{queue: runqueue.New(), slots: quota.NewSlots(1)}
		list := func(received int64) *listWatch {
			p := &listWatch{informer: &informer{member: &member{manager: m}}, machine: listwatch.New("", listwatch.Options{}), received: received}
			m.queue.Group().Init(&p.task, p)
			return p
		}
		small, first, second, third := list(smallList-1), list(smallList), list(smallList), list(smallList)
		if small.awaitsSlot(time.Now()) || first.awaitsSlot(time.Now()) || m.slots.InUse() != 1 {
			t.Errorf("%d slots are in use, want that of the first large list", m.slots.InUse())
		}
		if !second.awaitsSlot(time.Now()) || !third.awaitsSlot(time.Now()) {
			t.Error("others do not wait")
		}
		time.Sleep(slotPatience / 2)
		first.slot.Release()
		if second.awaitsSlot(time.Now()) || !third.awaitsSlot(time.Now()) {
			t.Error("the second does not go on, or the third does")
		}
		time.Sleep(slotPatience / 2)
		if third.awaitsSlot(time.Now()) || third.slot.Held() {
			t.Error("the third waits for longer than API servers do")
		}
		for _, p := range []*listWatch{second, third} {
			p.slot.Release()
			p.timer.Load().Stop()
		}
	})
}

func TestListWatch_LargePagesWaitForASlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{slots: quota.NewSlots(1)}
		p := &listWatch{informer: &informer{member: &member{manager: m}}}
		first, release := p.largeList(t.Context())
		second, releaseSecond := p.largeList(t.Context())
		began := time.Now()
		for range 100 {
			first()
		}
		if took := time.Since(began); took != 0 || m.slots.InUse() != 1 {
			t.Errorf("the first waits for %s", took)
		}
		for range 100 {
			second()
		}
		if took := time.Since(began); took != slotPatience {
			t.Errorf("the second waits for %s", took)
		}
		release()
		releaseSecond()
		if m.slots.InUse() != 0 {
			t.Error("a slot is held")
		}
	})
}
