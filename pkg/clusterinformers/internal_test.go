package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

func TestOptionsSayAllThatIsWrong(t *testing.T) {
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

func TestFirstRuleThatMatchesDecides(t *testing.T) {
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

func offerOf(kind string, versions ...string) offer {
	o := offer{}
	for _, v := range versions {
		o.add(schema.GroupVersion{Group: "shop.example", Version: v}, []metav1.APIResource{{Name: "widgets", Kind: kind, Verbs: metav1.Verbs{"list", "watch"}}})
	}
	return o
}

func TestCatalogPicksTheHeldVersion(t *testing.T) {
	const kind aggregate.Kind = "Widget.shop.example"
	for _, tt := range []struct {
		name    string
		held    []HeldVersion
		members [][]string
		want    []string // by member
		says    string
	}{
		{"one member", nil, [][]string{{"v1", "v1beta1"}}, []string{"v1"}, ""},
		{"preferred of all in common", nil, [][]string{{"v2", "v1", "v1beta1"}, {"v1", "v1beta1"}}, []string{"v1", "v1"}, ""},
		{"stable before beta", nil, [][]string{{"v1", "v2beta1"}, {"v2beta1", "v1"}}, []string{"v1", "v1"}, ""},
		{"nothing in common", nil, [][]string{{"v2"}, {"v1"}}, []string{"v2", "v1"}, "no version in common"},
		{"configured", []HeldVersion{{kind, "v1beta1"}}, [][]string{{"v1", "v1beta1"}, {"v1beta1"}}, []string{"v1beta1", "v1beta1"}, ""},
		{"configured, not served", []HeldVersion{{kind, "v3"}}, [][]string{{"v1"}}, []string{"v1"}, "v3 is configured but not served"},
	} {
		c := newCatalog(tt.held)
		for i, versions := range tt.members {
			c.put(string(rune('a'+i)), offerOf("Widget", versions...))
		}
		for i, versions := range tt.members {
			r, condition := c.pick(kind, offerOf("Widget", versions...)[kind])
			if r.gvr.Version != tt.want[i] || tt.says == "" && condition != "" || !strings.Contains(condition, tt.says) {
				t.Errorf("%s: member %d holds %s (%q), want %s (%q)", tt.name, i, r.gvr.Version, condition, tt.want[i], tt.says)
			}
		}
		for i := range tt.members {
			c.put(string(rune('a'+i)), nil)
		}
		if len(c.tally) != 0 || len(c.offers) != 0 {
			t.Errorf("%s: %v is left when all have gone", tt.name, c.tally)
		}
	}
}

func TestCatalogTellsOfChangesOnly(t *testing.T) {
	c := newCatalog(nil)
	changed := func(f func()) bool {
		ch := c.change()
		f()
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	if !changed(func() { c.put("a", offerOf("Widget", "v1")) }) {
		t.Error("a new kind is not told")
	}
	c.put("b", offerOf("Widget", "v1"))
	if changed(func() { c.put("b", offerOf("Widget", "v1")) }) {
		t.Error("the same again is told")
	}
	if !changed(func() { c.put("b", offerOf("Widget", "v2", "v1beta1")) }) {
		t.Error("another held version is not told")
	}
	c.put("b", nil)
	if !changed(func() { c.put("a", nil) }) {
		t.Error("a kind that goes is not told")
	}
}

// TestCatalogTellsNobodyOfOtherNames: whoever compares all that they hold when kinds
// come or go, and whoever follows kinds, does nothing for a member whose discovery
// offers a short name and withdraws it, or says the same again of a kind of its own.
func TestCatalogTellsNobodyOfOtherNames(t *testing.T) {
	c := newCatalog(nil)
	offers := [2]offer{offerOf("Widget", "v1"), offerOf("Widget", "v1")}
	for kind := range offers[1] {
		offers[1][kind][0].names.short = "wd"
	}
	c.put("a", offers[0])
	counts := map[string]int{}
	_, told := c.resources()
	_, other := c.allKinds()
	changed := c.change()
	look := func() {
		count := func(what string, ch <-chan struct{}) bool {
			select {
			case <-ch:
				counts[what]++
				return true
			default:
				return false
			}
		}
		if count("resources", told) {
			_, told = c.resources()
		}
		if count("kinds", other) {
			_, other = c.allKinds()
		}
		if count("what is followed", changed) {
			changed = c.change()
		}
	}
	const flips = 10
	for i := range flips {
		c.put("a", offers[(i+1)%2])
		look()
	}
	if want := (map[string]int{"resources": flips}); !maps.Equal(counts, want) {
		t.Errorf("told of %v, want %v", counts, want)
	}
	c.put("b", offerOf("Gadget", "v1"))
	look()
	c.put("b", offerOf("Widget", "v1"))
	look()
	if kinds, _ := c.allKinds(); counts["kinds"] != 2 || len(kinds) != 1 || !kinds["Widget.shop.example"] {
		t.Errorf("told %d times of kinds that come and go, there are %v", counts["kinds"], kinds)
	}
}

func TestOfferTakesWhatCanBeFollowed(t *testing.T) {
	o := offer{}
	o.add(schema.GroupVersion{Version: "v1"}, []metav1.APIResource{
		{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "pods", Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}}, // twice
		{Name: "pods/status", Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "bindings", Kind: "Binding", Verbs: metav1.Verbs{"create"}},
		{Name: "componentstatuses", Kind: "ComponentStatus", Verbs: metav1.Verbs{"list"}},
		{Name: "nameless", Verbs: metav1.Verbs{"list", "watch"}},
	})
	if len(o) != 1 || len(o["Pod"]) != 1 || !o["Pod"][0].namespaced {
		t.Errorf("offer %v", o)
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("v%d", len(many)-i)
	}
	if of := offerOf("Widget", many...)["Widget.shop.example"]; len(of) != maxVersions || of[0].gvr.Version != "v40" {
		t.Errorf("of 40 versions %d are looked at, from %v on", len(of), of[0].gvr)
	}
	// What cannot be told at the moment stays, and only that.
	last := offerOf("Widget", "v1", "v1beta1")
	o.keep(last, map[schema.GroupVersion]bool{{Group: "shop.example", Version: "v1"}: true})
	if kept := o["Widget.shop.example"]; len(kept) != 1 || kept[0].gvr.Version != "v1" {
		t.Errorf("kept %v", kept)
	}
	if apis := o.apis(); !slices.Equal(apis, []string{"shop.example/v1", "v1"}) {
		t.Errorf("apis %v", apis)
	}
}

func TestOfferIsBounded(t *testing.T) {
	o := offer{}
	for i := range maxKinds + 10 {
		o.add(schema.GroupVersion{Version: "v1"}, []metav1.APIResource{{Name: "x", Kind: fmt.Sprintf("K%d", i), Verbs: metav1.Verbs{"list", "watch"}}})
	}
	if len(o) != maxKinds {
		t.Errorf("%d kinds, want %d", len(o), maxKinds)
	}
}

func TestAccountRefusesWhatItDoesNotHave(t *testing.T) {
	a := account{limit: Budget{Objects: 10, Bytes: 100}}
	var s stake
	a.open()
	for _, step := range []struct {
		objects, bytes int64
		want           bool
	}{
		{10, 50, true}, {1, 0, false}, {0, 51, false}, {-1, 0, true}, {1, 50, true}, {1, 1, false}, {-10, -100, true},
	} {
		if got := a.charge(&s, step.objects, step.bytes); got != step.want {
			t.Errorf("charge(%d, %d) = %t, want %t", step.objects, step.bytes, got, step.want)
		}
	}
	if o, b := a.charged(); o != 0 || b != 0 {
		t.Errorf("%d objects, %d bytes are left", o, b)
	}
}

func TestAccountKeepsAShareForEveryScope(t *testing.T) {
	a := account{limit: Budget{Objects: 10, Bytes: 100}}
	var huge, small stake
	a.open()
	a.open()
	for _, step := range []struct {
		of             *stake
		objects, bytes int64
		want           bool
	}{
		{&huge, 10, 100, true},
		{&huge, 1, 0, false},
		{&small, 5, 50, true}, // its half, though nothing is left
		{&small, 1, 0, false},
		{&small, 0, 1, false},
		{&huge, -6, -60, true},
		{&small, 1, 10, true}, // more than its half, which is there now
	} {
		if got := a.charge(step.of, step.objects, step.bytes); got != step.want {
			t.Errorf("charge(%d, %d) = %t, want %t", step.objects, step.bytes, got, step.want)
		}
	}
	a.close(&huge)
	a.close(&small)
	if o, b := a.charged(); o != 0 || b != 0 {
		t.Errorf("%d objects, %d bytes are left", o, b)
	}
}

func TestClipBoundsAndCleans(t *testing.T) {
	if got := clip("a\x1b[31m\nb\x7f"); got != "a [31m b " {
		t.Errorf("%q", got)
	}
	long := clip(strings.Repeat("é\xff", maxMessage))
	if n := utf8.RuneCountInString(long); n != maxMessage || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("%d runes, valid %t", n, utf8.ValidString(long))
	}
}

func TestClassify(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}}
	}
	gr := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		err  error
		want trouble
	}{
		{io.ErrUnexpectedEOF, broken},
		{context.DeadlineExceeded, broken},
		{errors.New("http2: client connection lost"), broken},
		{apierrors.NewUnauthorized("x"), denied},
		{apierrors.NewForbidden(gr, "", nil), forbidden},
		{apierrors.NewNotFound(gr, ""), absent},
		{apierrors.NewMethodNotSupported(gr, "watch"), absent},
		{apierrors.NewResourceExpired("x"), expired},
		{status(410, metav1.StatusReasonGone), expired},
		{apierrors.NewBadRequest("x"), unable},
		{status(406, metav1.StatusReasonNotAcceptable), unable},
		{apierrors.NewTooManyRequests("x", 1), busy},
		{apierrors.NewInternalError(errors.New("x")), busy},
		{apierrors.NewServiceUnavailable("x"), busy},
		{status(502, ""), busy},
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

func TestSlotsThatStallGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		take := func(member chan struct{}) (*slot, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return s.take(ctx, member)
		}
		a, b := make(chan struct{}, slotsPerMember), make(chan struct{}, slotsPerMember)
		first, err := take(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := take(a); err != nil {
			t.Fatal(err)
		}
		if _, err := take(b); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a third of two slots: %v", err)
		}
		if len(b) != 0 {
			t.Error("who got no slot holds one of its member's")
		}
		first.release()
		first.release()
		third, err := take(b)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 { // it moves for longer than it may be idle
			time.Sleep(slotIdle - time.Millisecond)
			third.progress()
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if len(b) != 1 || len(a) != 0 {
			t.Errorf("held: %d by who moves, %d by who stalls; want 1 and 0", len(b), len(a))
		}
		time.Sleep(slotMost)
		synctest.Wait()
		if len(s.fleet) != 0 || len(b) != 0 {
			t.Errorf("%d slots are held for longer than any may be", len(s.fleet))
		}
	})
}

func TestConnLetsAllGoOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		c := newConn(func(context.Context, *access) error {
			if mended.Load() {
				return nil
			}
			return errors.New("connection refused")
		})
		ctx, cancel := context.WithCancel(t.Context())
		a := newAccess(nil, http.DefaultClient)
		c.swap(a, nil)
		ended := make(chan struct{})
		go func() { defer close(ended); c.run(ctx) }()
		admitted := make(chan time.Duration, 60)
		began := time.Now()
		for range 60 {
			go func() {
				if got, err := c.admit(ctx, true); err == nil && got == a {
					admitted <- time.Since(began)
				}
			}()
		}
		time.Sleep(time.Minute)
		if len(admitted) != 0 {
			t.Fatalf("%d were admitted while the member is out of reach", len(admitted))
		}
		if contact, reason, message, _ := c.state(); contact != Disconnected || reason != Unreachable || message != "connection refused" {
			t.Errorf("%s %s %q", contact, reason, message)
		}
		mended.Store(true)
		at := time.Since(began)
		first := <-admitted
		last := first
		for range 59 {
			last = <-admitted
		}
		if first-at > probeMax+reopenStir {
			t.Errorf("the first was admitted %s after the member was back", first-at)
		}
		// 25 at once and 50 a second.
		bucket := (60 - reopenBurst) * time.Second / reopenRate
		if took := last - first; took > bucket+reopenStir || took < bucket-reopenStir {
			t.Errorf("60 were admitted within %s, want %s", took, bucket)
		}
		cancel()
		<-ended
	})
}

func TestPagesAreChargedAsTheyCome(t *testing.T) {
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
	page := &objectList{}
	for range 4 {
		item := scope.Item(&aggregate.Record{Namespace: "a", Name: "b", UID: "c", ResourceVersion: "1", Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"a"}}`)})
		page.Items = append(page.Items, &object{item: item})
	}
	mb := &member{account: account{limit: Budget{Objects: 10, Bytes: 1 << 30}}}
	p := &part{informer: &informer{member: mb, stake: stake{objects: 2}, objects: 2}} // 2 are held and charged already
	mb.account.objects = 2
	for n, want := range []error{nil, nil, nil, errOverBudget} { // of 12, 2 take the place of those
		if n == 3 {
			mb.account.limit.Objects = 13
		}
		if n == 2 {
			mb.account.limit.Objects = 12
		}
		if err := p.counted(page, n == 0); !errors.Is(err, want) {
			t.Errorf("page %d: %v, want %v", n, err, want)
		}
	}
	if err := p.counted(page, true); err != nil {
		t.Errorf("the first page of another list: %v", err)
	}
	if o, _ := mb.account.charged(); o != 4 {
		t.Errorf("%d objects are charged, want 4", o)
	}
	p.settle(size{})
	if o, b := mb.account.charged(); o != 2 || b != 0 {
		t.Errorf("%d objects and %d bytes are left, want what is held", o, b)
	}
}
