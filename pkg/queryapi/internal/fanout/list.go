package fanout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/warning"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

var noTime time.Time

// list serves a list, in the format that the client prefers or, where that cannot hold it, the next.
func (q *request) list() error {
	again, err := q.listAs(part.Ask{})
	if again {
		_, err = q.listAs(part.Ask{Fallback: true})
	}
	return err
}

// listAs reports whether to list again, in another format.
func (q *request) listAs(ask part.Ask) (again bool, err error) {
	defer func() { q.g.end() }()
	if err := q.gather(ask); err != nil {
		return false, err
	}
	meta := resources.ListMeta{}
	if err := resources.SetFreshness(q.w.Header(), q.params, q.g.lead.Resource, q.g.notSynced); err != nil {
		return false, err
	}
	if !q.g.lead.Rows { // their header has them
		if meta.Annotations, err = selection.Annotations(q.g.notSynced); err != nil {
			return false, fmt.Errorf("fanout: %w", err)
		}
	}
	revision := q.as
	if revision == 0 {
		if revision, err = q.options.Revisions.mint(q.g.vector(), true); err != nil {
			return false, err
		}
	}
	meta.ResourceVersion = strconv.FormatUint(uint64(revision), 10)
	limit := q.setPage(&meta, revision)
	held, err := q.hold(meta)
	if err != nil {
		return false, err
	}
	if held != nil {
		defer held.Release()
		if refused := (&merge{parts: q.g.parts}).run(limit, func(it *part.Item) error { return held.Add(it.Text) }); refused != nil {
			return !ask.Fallback && q.g.lead.Fallback && !errors.Is(refused, errLost), q.lostBefore(refused)
		}
		q.warnList()
		held.Write(q.w, metav1.TypeMeta{APIVersion: q.g.lead.ItemVersion, Kind: q.g.lead.ItemKind})
		return false, nil
	}
	around, err := q.envelope(meta)
	if err != nil {
		return false, err
	}
	q.warnList()
	return false, q.writeList(around, limit)
}

// lostBefore is the error for a part that was lost before anything was sent.
func (q *request) lostBefore(err error) error {
	if errors.Is(err, errLost) {
		q.options.Log.Warn("query API: a process was lost while it answered", "error", err)
		return unavailable("a process was lost while it answered")
	}
	return err
}

// warnList sends all warnings.
func (q *request) warnList() {
	q.warnAll(func(h *part.Header) []string { return h.Warnings })
	others := map[string][]string{}
	for _, s := range q.g.parts {
		for version, members := range s.header.OtherVersions {
			others[version] = mergeSorted(others[version], members)
		}
	}
	resources.WarnOfVersions(others, q.g.lead.Resource, q.g.lead.Version, q.warn)
	if q.info.Verb != selection.List {
		return
	}
	if text := selection.Warning(q.g.notSynced); text != "" {
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil { // else it cannot be a header
			q.w.Header().Add("Warning", header)
		}
	}
	q.warnAll(func(h *part.Header) []string { return h.LateWarnings })
}

func (q *request) warn(text string) { warning.AddWarning(q.r.Context(), "", text) }

// warnAll sends warnings of all parts, each once.
func (q *request) warnAll(of func(*part.Header) []string) {
	seen := map[string]bool{}
	for _, s := range q.g.parts {
		for _, text := range of(s.header) {
			if !seen[text] {
				seen[text] = true
				q.warn(text)
			}
		}
	}
}

// setPage sets in meta whether more follow, and returns the number of items, -1 for all.
func (q *request) setPage(meta *resources.ListMeta, revision aggregate.Revision) int {
	if q.params.Limit == 0 {
		return -1
	}
	total, remaining, more, counted := int64(0), int64(0), false, true
	for _, s := range q.g.parts {
		h := s.header
		if h.Refused != nil {
			continue
		}
		total += int64(h.Count)
		remaining += h.Remaining
		more = more || h.More
		counted = counted && h.Counted
	}
	if total <= q.params.Limit && !more {
		return -1
	}
	meta.Continue = q.options.Tokens.Encode(q.tokenScope(), selection.Token{Revision: revision, After: q.lastOf(q.params.Limit)})
	if counted {
		rest := total + remaining - q.params.Limit
		meta.RemainingItemCount = &rest
	}
	return int(q.params.Limit)
}

// lastOf returns the position of the last of so many items.
func (q *request) lastOf(limit int64) (last aggregate.Position) {
	at := make([]int, len(q.g.parts))
	for {
		least := -1
		for i, s := range q.g.parts {
			if page := s.header.Page; at[i] < len(page) && (least < 0 || page[at[i]].Member < q.g.parts[least].header.Page[at[least]].Member) {
				least = i
			}
		}
		if least < 0 {
			return last
		}
		member := q.g.parts[least].header.Page[at[least]]
		at[least]++
		n := min(limit, int64(len(member.Keys)))
		if n > 0 {
			last.Member = member.Member
			last.Namespace, last.Name, _ = strings.Cut(member.Keys[n-1], "/")
		}
		if limit -= n; limit == 0 {
			return last
		}
	}
}

// hold returns the list in protobuf, which is held; nil for other formats.
func (q *request) hold(meta resources.ListMeta) (*resources.Held, error) {
	if !q.g.lead.Protobuf {
		return nil, nil
	}
	return q.options.Objects.Hold(q.user.GetName(), meta)
}

// rowsEnvelope is that of rows of all parts.
func (q *request) rowsEnvelope(meta resources.ListMeta) (*resources.Envelope, error) {
	var columns []rows.Column
	if err := json.Unmarshal(q.g.lead.Columns, &columns); err != nil {
		return nil, fmt.Errorf("fanout: %w", err)
	}
	var members []string
	for _, s := range q.g.parts {
		members = mergeSorted(members, s.header.Visible)
	}
	for _, n := range q.g.notSynced { // of which no process may know
		if i, ok := slices.BinarySearch(members, n.Member); !ok {
			members = slices.Insert(members, i, n.Member)
		}
	}
	return resources.RowsEnvelope(meta, q.g.lead.Kind, columns, members, q.g.notSynced)
}

func (q *request) envelope(meta resources.ListMeta) (*resources.Envelope, error) {
	h := q.g.lead
	if h.Rows {
		return q.rowsEnvelope(meta)
	}
	of := resources.Listed{Kind: h.ItemKind, APIVersion: h.ItemVersion, YAML: h.YAML}
	if h.Table {
		of.Columns = h.Columns
	}
	return of.Envelope(meta)
}

// contentType is that of a response that is no watch.
func (q *request) contentType() string {
	switch h := q.g.lead; {
	case h.Rows:
		return rows.MediaType
	case h.Protobuf:
		return "application/vnd.kubernetes.protobuf"
	case h.YAML:
		return "application/yaml"
	}
	return "application/json"
}

// flushAt is the size at which output is written.
const flushAt = 64 << 10

// writeList sends a list. A failure after the first byte closes the connection.
func (q *request) writeList(around *resources.Envelope, limit int) error {
	q.w.Header().Set("Content-Type", q.contentType())
	out := append(make([]byte, 0, flushAt+flushAt/4), around.Head...)
	started, some, n := false, false, 0
	err := (&merge{parts: q.g.parts}).run(limit, func(it *part.Item) error {
		n++
		switch {
		case !some:
			out = append(out, around.First...)
			some = true
		case !q.g.lead.YAML && !around.Rows:
			out = append(out, ',')
		}
		out = append(out, it.Text...)
		if len(out) < flushAt {
			return nil
		}
		started = true
		_, err := q.w.Write(out)
		out = out[:0]
		return err
	})
	if err != nil && !started {
		q.w.Header().Del("Content-Type")
		return q.lostBefore(err)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !some {
		out = append(out, around.Empty...)
	}
	_, _ = q.w.Write(append(out, around.End(n)...)) // the client may be gone
	return nil
}

// merge merges the items of parts, in the order of lists.
type merge struct {
	parts []*stream
	next  []part.Item // of each part; without a member: the part has ended
}

// errLost is for a part that ended early.
var errLost = errors.New("fanout: a part is incomplete")

func (m *merge) read(i int) error {
	m.next[i] = part.Item{}
	s := m.parts[i]
	kind, payload, err := s.reader.Next()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", errLost, s.place.id, err)
	case kind == part.End:
		return nil
	case kind != part.ItemFrame:
		return fmt.Errorf("%w: %s: a frame %q", errLost, s.place.id, kind)
	}
	if m.next[i], err = part.ParseItem(payload); err != nil {
		return fmt.Errorf("%w: %s: %w", errLost, s.place.id, err)
	}
	return nil
}

// run calls emit with the items, -1 or at most so many.
func (m *merge) run(limit int, emit func(*part.Item) error) error {
	m.next = make([]part.Item, len(m.parts))
	for i := range m.parts {
		if err := m.read(i); err != nil {
			return err
		}
	}
	var member []byte
	for limit != 0 {
		least := -1
		for i := range m.next {
			if of := m.next[i].Member; len(of) > 0 && (least < 0 || bytes.Compare(of, m.next[least].Member) < 0) {
				least = i
			}
		}
		if least < 0 {
			return nil
		}
		if bytes.Equal(m.next[least].Member, member) {
			return fmt.Errorf("%w: two have member %s", errLost, member)
		}
		member = append(member[:0], m.next[least].Member...)
		for ; limit != 0 && bytes.Equal(m.next[least].Member, member); limit-- {
			if err := emit(&m.next[least]); err != nil {
				return err
			}
			if limit == 1 {
				return nil
			}
			if err := m.read(least); err != nil {
				return err
			}
		}
	}
	return nil
}

// mergeSorted merges two sorted lists.
func mergeSorted(a, b []string) []string {
	out := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
