package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/kube"
)

// What the process may hold beside what is accounted and what it held without attackers, in
// bytes: buffers of connections, decoders, verdicts, caches of authorisation.
const (
	heapAllowance = 40 << 20
	// The index's log of changes keeps logBytes of what has changed, and four times as much
	// of the last set that has gone, as the index accounts them; versions of the verdicts
	// keep an eighth of what a binding may hold.
	heapOfLog = (1+4)*8<<20*heapRatio + heldByBinding/8
	// How long the snapshots of lists in pages are kept for who reads on.
	pagesKept = 5*time.Minute + 30*time.Second
	heapRatio = 1.5
	// How much of a body beyond its bound a client may have taken before it closes: what
	// was under way in windows of HTTP/2.
	windows = 8 << 20
)

// bounds are the most that may be read of one body.
var bounds = map[Verb]int64{Version: 16<<20 + windows, Discovery: 16<<20 + windows, Get: 16<<20 + windows, List: 8<<20 + windows, Watch: 0, WatchList: 0}

// get returns the JSON that a client gets.
func get(ctx context.Context, client *http.Client, url, accept string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 256<<20))
	return resp.StatusCode, body, err
}

// list returns the objects of an answer by namespace and name.
func list(ctx context.Context, client *http.Client, at string, keep func(map[string]any) bool) (map[string]map[string]any, error) {
	code, body, err := get(ctx, client, at, "application/json")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %.300s", at, code, body)
	}
	doc, err := unmarshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	out := map[string]map[string]any{}
	items, _ := doc["items"].([]any)
	for _, item := range items {
		o, _ := item.(map[string]any)
		if kind, said := o["kind"]; said && doc["kind"] != fmt.Sprint(kind, "List") {
			return nil, fmt.Errorf("%s is a %v and has a %v: %.300v", at, doc["kind"], kind, o["metadata"])
		}
		if o == nil || keep != nil && !keep(o) {
			continue
		}
		meta := metadata(o)
		key := fmt.Sprintf("%v/%v", meta["namespace"], meta["name"])
		if out[key] != nil {
			return nil, fmt.Errorf("%s: %s comes twice", at, key)
		}
		shape(o)
		out[key] = o
	}
	return out, nil
}

// shape leaves what is the same at the member and in federator's answers.
func shape(o map[string]any) {
	meta := metadata(o)
	delete(meta, "managedFields")
	delete(meta, "resourceVersion")
	delete(o, "apiVersion")
	delete(o, "kind")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		maps.DeleteFunc(annotations, func(k string, _ any) bool {
			return strings.HasPrefix(k, "federator.dev/") || k == "kubectl.kubernetes.io/last-applied-configuration"
		})
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	for _, field := range []string{"data", "binaryData"} { // values are cut
		if values, ok := o[field].(map[string]any); ok {
			for k := range values {
				values[k] = ""
			}
		}
	}
}

func memberOf(o map[string]any) string {
	annotations, _ := metadata(o)["annotations"].(map[string]any)
	name, _ := annotations["federator.dev/member"].(string)
	return name
}

// honestEqual compares what federator says of honest members with what they serve.
func (r *rig) honestEqual(ctx context.Context) error {
	for _, member := range honest {
		if err := r.equal(ctx, member, member, nil); err != nil {
			return err
		}
	}
	return nil
}

// equal compares what federator says of a member with what a server says.
func (r *rig) equal(ctx context.Context, member, server string, rename func([]byte) []byte) error {
	for _, k := range markedKinds {
		want, err := list(ctx, r.asks[server], strings.TrimSuffix(r.upon[server].Host, "/")+k.path+"/"+k.resource, nil)
		if err != nil {
			return err
		}
		if rename != nil {
			raw, err := json.Marshal(want)
			if err != nil {
				return err
			}
			want = nil
			if err := json.Unmarshal(rename(raw), &want); err != nil {
				return err
			}
		}
		ours := func(o map[string]any) bool { return memberOf(o) == member }
		for _, prefix := range []string{"/members/" + member, "/fleet"} {
			got, err := list(ctx, r.admin, r.host+prefix+k.path+"/"+k.resource, ours)
			if err != nil {
				return err
			}
			if err := same(got, want); err != nil {
				return fmt.Errorf("%s%s/%s of %s: %w", prefix, k.path, k.resource, member, err)
			}
		}
		if err := r.counted(ctx, member, k, len(want)); err != nil {
			return err
		}
	}
	return nil
}

// counted holds the count of a member's objects to their number.
func (r *rig) counted(ctx context.Context, member string, k markedKind, want int) error {
	at := "/query/v1/count?" + url.Values{"resource": {k.grant()}, "groupBy": {"member"}}.Encode()
	code, body, err := get(ctx, r.admin, r.host+at, "application/json")
	if err != nil {
		return err
	}
	if i := bytes.Index(body, []byte(RawError)); i >= 0 {
		return fmt.Errorf("%s shows the words of a member: …%s…", at, body[max(0, i-300):min(len(body), i+300)])
	}
	if code != http.StatusOK || !bytes.Contains(bytes.ReplaceAll(body, []byte(" "), nil), []byte(fmt.Sprintf(`%q],"count":%d}`, member, want))) {
		return fmt.Errorf("%s says of %s: %d %.400s, want %d", at, member, code, body, want)
	}
	return nil
}

func same(got, want map[string]map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		g, ok := got[key]
		if !ok {
			return fmt.Errorf("%s is missing, %d of %d are there", key, len(got), len(want))
		}
		gj, err1 := json.Marshal(g)
		wj, err2 := json.Marshal(want[key])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if !bytes.Equal(gj, wj) {
			return fmt.Errorf("%s is\n%.1500s\nwant\n%.1500s", key, gj, wj)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			return fmt.Errorf("%.200s is there, which is not served", key)
		}
	}
	return nil
}

// scopesEqual holds the kinds of honest members to what they were without attackers.
func (r *rig) scopesEqual(ctx context.Context) error {
	members, err := r.fed.members(ctx)
	if err != nil {
		return err
	}
	for _, name := range honest {
		m := members[name]
		if m.State != connection.Connected {
			return fmt.Errorf("%s is %s %s: %s", name, m.State, m.Reason, m.Message)
		}
		for _, s := range m.Details {
			if !r.kinds[name][s.Kind] {
				return fmt.Errorf("%s has a scope of %.100s (%s), which it has not had without attackers", name, s.Kind, s.State)
			}
			if s.State != aggregate.Synced && s.State != aggregate.NotServed && s.State != aggregate.Partial {
				return fmt.Errorf("%s of %s is %s %s", s.Kind, name, s.State, s.Reason)
			}
		}
		if len(m.Details) < r.scopes[name] {
			return fmt.Errorf("%s has %d scopes, had %d", name, len(m.Details), r.scopes[name])
		}
	}
	return nil
}

// freshWithin is how old what honest members have sent may be: they are asked every 3 s
// whether they are there.
const freshWithin = 10 * time.Second

// honestFresh holds what is known of honest members to be as of now.
func (r *rig) honestFresh(ctx context.Context) error {
	members, err := r.fed.members(ctx)
	if err != nil {
		return err
	}
	for _, name := range honest {
		if f := members[name].Freshness; f == nil || *f > freshWithin {
			return fmt.Errorf("%s is as of %v ago", name, f)
		}
	}
	return nil
}

// asSaid holds what an attacker's kinds are said to be to what is held of them: where nothing
// false is sent of objects, what is Synced is as the attacker serves it.
func (r *rig) asSaid(ctx context.Context, l *attacker, attacks []*Attack) error {
	if slices.ContainsFunc(attacks, func(a *Attack) bool { return !a.Exact }) {
		return nil
	}
	members, err := r.fed.members(ctx)
	if err != nil {
		return err
	}
	m := members[l.name]
	if m.State != connection.Connected || !m.Ready() {
		return nil
	}
	if err := r.equal(ctx, l.name, l.upon, disguise); err != nil {
		return fmt.Errorf("all of %s is said to be Synced: %w", l.name, err)
	}
	return nil
}

// heapWithin holds the heap to what is accounted.
func (r *rig) heapWithin(ctx context.Context, attacks []*Attack) error {
	members, err := r.fed.members(ctx)
	if err != nil {
		return err
	}
	var accounted int64
	for _, m := range members {
		accounted += m.Bytes
	}
	u, err := r.fed.usage(ctx)
	if err != nil {
		return err
	}
	r.note("heap %d MiB, accounted %d MiB, peak %d MiB, %d goroutines, %d files", u.heap>>20, accounted>>20, u.peak>>20, u.goroutines, u.files)
	most := r.base.heap + int64(heapRatio*float64(accounted)) + heapAllowance + heapOfLog
	for _, l := range attacks {
		most += l.FindingBytes
	}
	if u.heap > most {
		return fmt.Errorf("the heap is %d MiB, and %d MiB are accounted: at most %d MiB", u.heap>>20, accounted>>20, most>>20)
	}
	return nil
}

// holds waits for what a member's attacks leave to be held of it.
func (r *rig) holds(ctx context.Context, l *attacker, attacks []*Attack) error {
	if len(attacks) > 1 { // the other may keep it from being so
		return nil
	}
	err := kube.Until(ctx, patience, func() error {
		members, err := r.fed.members(ctx)
		if err != nil {
			return err
		}
		m := members[l.name]
		if attacks[0].Complete && !m.Synced {
			return fmt.Errorf("%s has not synced: %s %s %s", l.name, m.State, m.Reason, m.LastError)
		}
		for _, s := range m.Details {
			if want, known := attacks[0].Holds[string(s.Kind)]; known && s.Objects != want {
				return fmt.Errorf("%d of %d %s are held of %s, which is %s %s", s.Objects, want, s.Kind, l.name, s.State, s.Reason)
			}
			if attacks[0].Complete && s.State == aggregate.Stale {
				return fmt.Errorf("%s of %s is %s: %s", s.Kind, l.name, s.State, s.Reason)
			}
		}
		return nil
	})
	if err != nil {
		return &Finding{"holds", err}
	}
	return nil
}

// named waits for what is not followed as an attacker serves it to be named.
func (r *rig) named(ctx context.Context, l *attacker, attacks []*Attack) error {
	if len(attacks) > 1 || !attacks[0].Refused {
		return nil
	}
	err := kube.Until(ctx, holdsWithin, func() error {
		if r.fed.logged("kind rejected", l.name) == nil {
			return fmt.Errorf("nothing is said of what %s serves under another kind's resource", l.name)
		}
		return nil
	})
	if err != nil {
		return &Finding{"named", err}
	}
	return nil
}

// eventsWithin holds what is kept of Events to their share.
func (r *rig) eventsWithin(ctx context.Context) error {
	members, err := r.fed.members(ctx)
	if err != nil {
		return err
	}
	for name, m := range members {
		for _, s := range m.Details {
			if s.Kind == "Event" && s.Bytes > eventShare+eventShare/4 {
				return &Finding{"events", fmt.Errorf("%d Events of %s take %d bytes, at most %d should be", s.Objects, name, s.Bytes, eventShare)}
			}
		}
	}
	return nil
}

// pagesGone is how long it takes until no page keeps alive what an attacker has shown: what
// readers make the process keep is bounded, and not accounted to members.
func (r *rig) pagesGone() time.Duration {
	at := r.paged.Load()
	if at == nil {
		return 0
	}
	return pagesKept - time.Since(*at)
}

// keepHeap writes a profile of the heap into the directory HOSTILE_HEAPS, where it is given.
func (r *rig) keepHeap(ctx context.Context, step uint64) {
	dir := os.Getenv("HOSTILE_HEAPS")
	if dir == "" {
		return
	}
	profile, err := r.fed.ask(ctx, "/debug/pprof/heap?gc=1")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("heap-%d.pb.gz", step)), profile, 0o600)
	}
	r.note("profile of the heap: %v", err)
}

// takenWithin holds bodies that an attacker sends to their bounds.
func (l *attacker) takenWithin() error {
	for verb, most := range bounds {
		if n := l.proxy.Taken(verb); most > 0 && n > most {
			return &Finding{"taken", fmt.Errorf("%d MiB were read of one answer to %s, at most %d MiB should be", n>>20, verb, most>>20)}
		}
	}
	return nil
}

// maxLogged is how many bytes may be logged of one attack.
const maxLogged = 4 << 20

// loggedWithin holds what has been logged since to its bound.
func (r *rig) loggedWithin(since int) error {
	now, err := r.fed.logSize()
	if err == nil && now-since > maxLogged {
		err = &Finding{"log", fmt.Errorf("%d MiB were logged: %.300s", (now-since)>>20, r.fed.Tail(3))}
	}
	return err
}

// backTo waits for goroutines and files to be as before.
func (r *rig) backTo(ctx context.Context) error {
	u, err := r.fed.usage(ctx)
	if err != nil {
		return err
	}
	if most := r.base.goroutines + r.base.goroutines/4 + 60; u.goroutines > most {
		return fmt.Errorf("%d goroutines, %d before: at most %d", u.goroutines, r.base.goroutines, most)
	}
	if most := r.base.files + 40; u.files > most {
		return fmt.Errorf("%d files, %d before: at most %d", u.files, r.base.files, most)
	}
	return nil
}

// unbroken reports a process that has ended or recovered from a panic.
func (r *rig) unbroken() error {
	if !r.fed.Alive() {
		return &Finding{"life", fmt.Errorf("the process has ended: %w\n%s", r.fed.Err(), r.fed.Tail(60))}
	}
	if err := r.fed.logged("panic"); err != nil {
		return &Finding{"panic", err}
	}
	return nil
}

// Finding is what an oracle has found.
type Finding struct {
	oracle string
	err    error
}

func (f *Finding) Error() string { return f.oracle + ": " + f.err.Error() }

func (f *Finding) Unwrap() error { return f.err }

// skipped leaves out what HOSTILE_SKIP names, and what is none.
func skipped(errs ...error) (out []error) {
	for _, err := range errs {
		var f *Finding
		if err != nil && !(errors.As(err, &f) && slices.Contains(words("HOSTILE_SKIP"), f.oracle)) {
			out = append(out, err)
		}
	}
	return out
}

// oraclesOf names those that found something.
func oraclesOf(err error) string {
	var names []string
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			names = append(names, oraclesOf(e))
		}
		slices.Sort(names)
		return strings.Join(slices.Compact(names), "+")
	}
	var f *Finding
	if errors.As(err, &f) {
		return f.oracle
	}
	return "other"
}
