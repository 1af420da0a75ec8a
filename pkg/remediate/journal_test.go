package remediate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/test/seed"
)

// actionGenerator makes random actions.
type actionGenerator struct{ *rand.Rand }

func (r actionGenerator) pick(of ...string) string { return of[r.IntN(len(of))] }

// words are texts as people, members and policies write them.
func (r actionGenerator) words(most int) string {
	var b strings.Builder
	for range r.IntN(8) {
		b.WriteString(r.pick("a", "Zürich ", "no tier", "\"quoted\"", "{}", "日本", "line\nnext", "\\", " ", "/", "e\u0301", "🙂"))
	}
	return clip.Text(b.String(), most)
}

func (r actionGenerator) hash() string { return objects.Hash([]byte(fmt.Sprint(r.Uint64()))) }

func (r actionGenerator) object() json.RawMessage {
	text, err := json.Marshal(map[string]any{r.words(20) + "x": r.words(200), "n": 1 << 60, "null": nil, "list": []any{1.5, "<&>", map[string]any{}}})
	if err != nil {
		panic(err)
	}
	return text
}

func (r actionGenerator) time() time.Time {
	if r.IntN(5) == 0 {
		return time.Time{}
	}
	return time.UnixMicro(1_700_000_000_000_000 + r.Int64N(1e15)).UTC()
}

func (r actionGenerator) ref() policy.Ref {
	ref := policy.Ref{Member: r.pick("fleet/eu-1", "a.b/c-d"), Kind: policy.Kind(r.pick("ConfigMap", "Deployment.apps", "Secret", "Gateway.gateway.networking.k8s.io")), Name: r.pick("x", "a.b:c", "web-0")}
	ref.Namespace = r.pick("", "shop")
	return ref
}

func (r actionGenerator) action(n int) *Action {
	target := r.ref()
	a := &Action{
		Name: fmt.Sprintf("%s-%d", strings.Trim(dnsLabel(r.words(100)), "-"), n),
		Intent: Intent{
			Binding: r.words(100) + "b", Package: "acme." + r.pick("x", "y"), Message: r.words(400),
			Source: r.pick("", "git"), Commit: r.pick("", r.hash()[:40]), Path: r.pick("", "a/b.rego"),
			Revision: policy.Revision(r.Uint64()), Subject: policy.Subject{Ref: target},
			Remedy:     policy.Remedy{Action: r.pick("apply", "patch", "delete"), Target: target},
			APIVersion: r.pick("v1", "apps/v1"), UID: r.hash()[:36], ResourceVersion: fmt.Sprint(r.IntN(1e9)),
			Force: r.IntN(3) == 0, ActAs: r.pick("", "alice", "system:serviceaccount:a:b"),
			Reason: r.words(300), RollbackOf: r.pick("", "other-1"),
		},
		Message: r.words(300), Attempts: r.IntN(7), BeforeHash: r.hash(), AfterHash: r.pick("", r.hash()), Started: r.time(),
	}
	switch r.IntN(4) {
	case 0:
		a.Subject = policy.Subject{Ref: r.ref()}
	case 1:
		a.Subject = policy.Subject{Key: r.words(100) + "k"}
	case 2:
		a.Subject = policy.Subject{Ref: policy.Ref{Member: "fleet/eu-2"}}
	}
	secret := target.Kind == "Secret" // of which no patch is recorded
	switch a.Remedy.Action {
	case "apply":
		if a.Remedy.Object = r.object(); r.IntN(2) == 0 {
			a.UID, a.ResourceVersion, a.BeforeHash = "", "", ""
		}
	case "patch":
		if a.Remedy.Patch = r.object(); r.IntN(2) == 0 {
			a.Remedy.Patch = json.RawMessage(`[{"op":"add","path":"/x","value":null}]`)
		}
	case "delete":
		a.Remedy.Propagation = r.pick("", "Background", "Foreground", "Orphan")
	}
	if secret {
		a.Remedy.Object, a.Remedy.Patch = nil, nil
	}
	switch r.IntN(4) {
	case 0:
		a.Irreversible = r.words(300) + "."
	case 1:
		a.InverseVerb = "delete"
	case 2:
		a.InverseVerb, a.Inverse = r.pick("apply", "patch"), r.object()
	}
	phases := []v1alpha1.ActionPhase{v1alpha1.PhaseWriting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp, v1alpha1.PhaseSuperseded, v1alpha1.PhaseContended, v1alpha1.PhaseProtected, v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack}
	a.Phase = phases[r.IntN(len(phases))]
	a.tried = a.Phase == v1alpha1.PhaseFailed && r.IntN(2) == 0
	switch a.Phase {
	case v1alpha1.PhaseContended:
		a.Manager = r.pick("kubectl", "helm, argo")
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseRolledBack:
		a.WrittenVersion = fmt.Sprint(r.IntN(1e9))
	}
	if isFinal(a.Phase) {
		a.Ended = r.time()
	}
	return a
}

// TestHubJournal_RoundTrip: of random actions, by the codec and by the hub.
func TestHubJournal_RoundTrip(t *testing.T) {
	s := newFixture(t)
	r := actionGenerator{rand.New(rand.NewPCG(seed.Of(t), 2))} // A test's.
	for n := range 2000 {
		a := r.action(n)
		in, err := encodeAction(a)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out v1alpha1.Action
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		expectSame(t, decodeAction(&out), a)
		if t.Failed() {
			return
		}
		for key, value := range in.Labels {
			if why := validation.IsValidLabelValue(value); len(why) > 0 {
				t.Errorf("%s %q: %v", key, value, why)
			}
		}
		if why := validation.IsDNS1123Subdomain(in.Name); len(why) > 0 {
			t.Errorf("name %q: %v", in.Name, why)
		}
		if n%40 != 0 {
			continue
		}
		wanted := *a // create and update must not change it
		if err := s.journal.create(t.Context(), a); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		t.Cleanup(func() { s.erase(a.Name) })
		got, err := s.journal.get(t.Context(), a.Name)
		if err != nil {
			t.Fatal(err)
		}
		if a.Phase == v1alpha1.PhaseWriting { // it has no status yet
			wanted.Message, wanted.Attempts, wanted.Started = "", 0, time.Time{}
		}
		got.recordUID, got.created = "", time.Time{} // as the hub gave them
		expectSame(t, got, &wanted)
	}
}

func expectSame(t *testing.T, got, want *Action) {
	t.Helper()
	g, w := *got, *want
	g.recordVersion, w.recordVersion = "", ""
	g.recordBytes, w.recordBytes = 0, 0
	if !reflect.DeepEqual(g, w) {
		t.Errorf("read     %+v\nrecorded %+v", g, w)
	}
}

// erase deletes a record, as a person may.
func (s *fixture) erase(name string) {
	if err := shared.Fleet.Hub.Client().CoreV1().RESTClient().Delete().AbsPath("/apis/federator.dev/v1alpha1/actions", name).Do(s.context()).Error(); err != nil {
		s.Errorf("%s: %v", name, err)
	}
}

// plain is an action that can be recorded, of a target that nobody has.
func (s *fixture) plain(name string, phase v1alpha1.ActionPhase) *Action {
	a := &Action{
		Name: s.ns + "-" + name, Phase: phase, Started: time.Now(),
		Intent: *s.intentFor(nil, patch(`{"a":"b"}`)),
	}
	a.UID, a.ResourceVersion, a.APIVersion = "u", "1", "v1"
	a.Remedy.Target = policy.Ref{Member: "nobody/nowhere", Kind: "ConfigMap", Namespace: "x", Name: "y"}
	if isFinal(phase) {
		a.Ended = time.Now()
	}
	return a
}

func (s *fixture) record(a *Action) *Action {
	s.Helper()
	if err := s.journal.create(s.Context(), a); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if s.known(a.Name) {
			s.erase(a.Name)
		}
	})
	return a
}

func (s *fixture) known(name string) bool {
	_, err := s.journal.get(s.context(), name)
	return err == nil
}

// TestHubJournal_ListsOpenAndWritten: actions that have not ended, and writes within the window.
func TestHubJournal_ListsOpenAndWritten(t *testing.T) {
	s := newFixture(t)
	var want []string
	for _, phase := range []v1alpha1.ActionPhase{v1alpha1.PhaseWriting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp, v1alpha1.PhaseSuperseded, v1alpha1.PhaseContended, v1alpha1.PhaseProtected, v1alpha1.PhaseFailed} {
		a := s.record(s.plain(strings.ToLower(string(phase)), phase))
		if phase == v1alpha1.PhaseWriting || phase == v1alpha1.PhaseSucceeded {
			want = append(want, a.Name)
		}
	}
	old := s.plain("old", v1alpha1.PhaseSucceeded)
	old.Ended = time.Now().Add(-200 * time.Hour).Truncate(time.Microsecond)
	old.Generation, old.Wave, old.WrittenVersion, old.Subject = "g", 2, "77", policy.Subject{Key: "host"}
	want = append(want, s.record(old).Name)
	for n := range 100 {
		want = append(want, s.record(s.plain(fmt.Sprint(n), v1alpha1.PhaseWriting)).Name)
	}
	all, err := s.journal.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range all {
		if a.Binding == s.binding {
			got = append(got, a.Name)
		}
		if a.Name == old.Name {
			if a.Remedy.Target != old.Remedy.Target || a.UID != old.UID || a.Subject != old.Subject || a.Phase != old.Phase || !a.Ended.Equal(old.Ended) ||
				a.Generation != "g" || a.Wave != 2 || a.WrittenVersion != "77" || a.Remedy.Action != old.Remedy.Action || a.Remedy.Patch != nil || a.recordUID == "" {
				t.Errorf("from a table: %+v, recorded: %+v", a, old)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHubJournal_CountsBytes: at least those that an Action has on the hub, with the longest
// status, and no more than a few KiB beyond; a list says the same without its body.
func TestHubJournal_CountsBytes(t *testing.T) {
	s := newFixture(t)
	a := s.plain("long", v1alpha1.PhaseWriting)
	a.Remedy = policy.Remedy{Action: "patch", Target: a.Remedy.Target, Patch: []byte(`{"data":{"a":"` + strings.Repeat("b", 10_000) + `"}}`)}
	if err := s.journal.create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.erase(a.Name) })
	a.Phase, a.Message, a.Manager, a.Attempts, a.Ended = v1alpha1.PhaseContended, strings.Repeat("m", maxMessage), strings.Repeat("m", maxManager), 6, time.Now()
	a.Acknowledged, a.WrittenVersion = &Acknowledgement{Halt: strings.Repeat("h", maxHaltID), By: strings.Repeat("b", maxAcknowledger), At: time.Now()}, "1234567890"
	if err := s.journal.update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	body, err := shared.Fleet.Hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/actions", a.Name).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if over := a.recordBytes - int64(len(body)); over < 0 || over > addedBytes {
		t.Errorf("counted %d bytes, it has %d", a.recordBytes, len(body))
	}
	t.Logf("counted %d bytes, it has %d", a.recordBytes, len(body))
	var listed int64
	if err := s.journal.forEach(t.Context(), func() {}, func(b *Action) {
		if b.Name == a.Name {
			listed = b.recordBytes
		}
	}); err != nil || listed != a.recordBytes {
		t.Errorf("a list says %d bytes, %v, want %d", listed, err, a.recordBytes)
	}
}

// TestHubJournal_DeletesOldActions: those that are open, young or among the newest stay.
func TestHubJournal_DeletesOldActions(t *testing.T) {
	s := newFixture(t)
	at := func(name string, phase v1alpha1.ActionPhase, age time.Duration) string {
		a := s.plain(name, phase)
		if a.Started = time.Now().Add(-age); isFinal(phase) {
			a.Ended = a.Started
		}
		return s.record(a).Name
	}
	// Older than all that other tests have recorded, so that keep is about these.
	open, young := at("open", v1alpha1.PhaseWriting, 1000*time.Hour), at("young", v1alpha1.PhaseFailed, time.Minute)
	old, older := at("old", v1alpha1.PhaseSucceeded, 100*time.Hour), at("older", v1alpha1.PhaseSuperseded, 200*time.Hour)
	if n, err := s.journal.deleteEnded(t.Context(), 10*time.Hour, time.Hour, 1_000_000); n != 0 || err != nil {
		t.Errorf("collected %d, %v: all are among the newest", n, err)
	}
	if n, err := s.journal.deleteEnded(t.Context(), 90*time.Hour, 150*time.Hour, 0); n != 1 || err != nil {
		t.Errorf("collected %d, %v, want 1", n, err)
	}
	for name, stays := range map[string]bool{open: true, young: true, old: true, older: false} {
		if s.known(name) != stays {
			t.Errorf("%s: kept: %v, want %v", name, !stays, stays)
		}
	}
	if n, err := s.journal.deleteEnded(t.Context(), 10*time.Hour, time.Hour, 0); n != 1 || err != nil || s.known(old) {
		t.Errorf("collected %d, %v, want 1", n, err)
	}
}

// TestHubJournal_CreatesOnce: the first process creates it, even if its response is lost.
func TestHubJournal_CreatesOnce(t *testing.T) {
	s := newFixture(t)
	first := s.record(s.plain("one", v1alpha1.PhaseWriting))
	if err := s.journal.create(t.Context(), s.plain("one", v1alpha1.PhaseWriting)); !errors.Is(err, errExists) {
		t.Errorf("%v, want ErrExists", err)
	}
	if _, err := s.journal.get(t.Context(), "none"); !errors.Is(err, ErrNoAction) {
		t.Errorf("%v, want ErrNoAction", err)
	}
	if err := s.journal.update(t.Context(), s.plain("none", v1alpha1.PhaseFailed)); !errors.Is(err, ErrNoAction) {
		t.Errorf("%v, want ErrNoAction", err)
	}
	if err := s.journal.update(t.Context(), first); err != nil {
		t.Error(err)
	}

	// The request is lost on its way, and meanwhile another process has recorded another
	// correction under the name, or the same one, which it has ended.
	for name, other := range map[string]func(*Action){
		"other": func(a *Action) { a.Remedy.Patch = json.RawMessage(`{"c":"d"}`) },
		"ended": func(a *Action) { a.Phase, a.Ended = v1alpha1.PhaseFailed, time.Now() },
	} {
		lost := false
		s.hub.before = func(r *http.Request) error {
			if r.Method == http.MethodPost && !lost {
				lost = true
				a := s.plain(name, v1alpha1.PhaseWriting)
				other(a)
				s.record(a)
				return errLost
			}
			return nil
		}
		if err := s.journal.create(t.Context(), s.plain(name, v1alpha1.PhaseWriting)); !errors.Is(err, errExists) {
			t.Errorf("%s: %v, want ErrExists", name, err)
		}
		s.hub.before = nil
	}
	if err := s.journal.create(t.Context(), s.plain("UPPER", v1alpha1.PhaseWriting)); !errors.Is(err, errInvalidIntent) {
		t.Errorf("a name that cannot be: %v, want ErrIntent", err)
	}
}

// TestHubJournal_UpdateReadsChangedRecords: another process, or a person, was first.
func TestHubJournal_UpdateReadsChangedRecords(t *testing.T) {
	s := newFixture(t)
	for _, c := range []struct {
		name        string
		there, ours v1alpha1.ActionPhase
		want        error
	}{
		{"ended alike", v1alpha1.PhaseSucceeded, v1alpha1.PhaseSucceeded, nil},
		{"ended otherwise", v1alpha1.PhaseSuperseded, v1alpha1.PhaseSucceeded, errEnded},
		{"still open", v1alpha1.PhaseWriting, v1alpha1.PhaseSucceeded, nil},
		{"failed before", v1alpha1.PhaseFailed, v1alpha1.PhaseSucceeded, nil},
	} {
		name := strings.ReplaceAll(c.name, " ", "-")
		mine := s.record(s.plain(name, v1alpha1.PhaseWriting))
		theirs := *mine
		theirs.Phase, theirs.Message = c.there, "theirs"
		if err := s.journal.update(t.Context(), &theirs); err != nil {
			t.Fatal(err)
		}
		mine.Phase, mine.Message, mine.Ended = c.ours, "ours", time.Now()
		if err := s.journal.update(t.Context(), mine); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		got, err := s.journal.get(t.Context(), mine.Name)
		if err != nil {
			t.Fatal(err)
		}
		phase, message := c.ours, "ours"
		if c.want != nil || c.there == c.ours {
			phase, message = c.there, "theirs"
		}
		if got.Phase != phase || got.Message != message {
			t.Errorf("%s: %s by %s, want %s by %s", c.name, got.Phase, got.Message, phase, message)
		}
	}

	// The acknowledgement stays.
	a := s.record(s.plain("seen", v1alpha1.PhaseFailed))
	err := shared.Fleet.Hub.Client().CoreV1().RESTClient().Patch("application/merge-patch+json").
		AbsPath("/apis/federator.dev/v1alpha1/actions", a.Name, "status").Body([]byte(`{"status":{"acknowledgedBy":"alice"}}`)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	a.Phase, a.Message, a.Ended = v1alpha1.PhaseWriting, "", time.Time{}
	if err := s.journal.update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if text := s.raw(a.Name); !strings.Contains(text, `"acknowledgedBy":"alice"`) || !strings.Contains(text, `"phase":"Writing"`) || strings.Contains(text, "endedAt") {
		t.Errorf("recorded %s", text)
	}
	by := Acknowledgement{Halt: "0123456789ab", By: "bob", At: time.Unix(1_800_000_000, 0)}
	a.Phase, a.Message, a.Ended, a.Acknowledged = v1alpha1.PhaseFailed, "refused", time.Now(), &by
	if err := s.journal.update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	known, err := s.journal.get(t.Context(), a.Name)
	if err != nil {
		t.Fatal(err)
	}
	if got := known.Acknowledged; got == nil || got.Halt != by.Halt || got.By != by.By || !got.At.Equal(by.At) {
		t.Errorf("acknowledged %+v, want %+v", got, by)
	}
}
