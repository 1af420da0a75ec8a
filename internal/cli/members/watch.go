package members

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// gone is the state that is printed of a member that has left.
const gone connection.State = "Gone"

// watchMembers prints what a query selects, and then each member that changes, or of one
// member each scope, until ctx is done.
func watchMembers(ctx context.Context, opts *options, out io.Writer, fetch fetcher, q clusterinformers.MemberQuery) error {
	w := &watcher{opts: opts, out: out, seen: map[string]string{}}
	for {
		began := time.Now()
		status, err := fetch.all(ctx, q)
		if err == nil && opts.name != "" && len(w.seen) == 0 {
			_, err = findMember(status.Members, opts.name)
		}
		if err == nil {
			err = w.print(ctx, status, fetch)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(pollInterval, 10*time.Since(began))):
		}
	}
}

// watcher prints what has changed since it printed it, as kubectl get --watch does.
type watcher struct {
	opts *options
	out  io.Writer

	seen  map[string]string // what is compared, by member, or by kind of one member
	table *console.Table    // nil before the first row
	docs  int               // JSON or YAML documents that were printed
}

// change is a row, or a document, that is printed.
type change struct {
	cells  []console.Cell
	member clusterinformers.MemberStatus
}

func (w *watcher) print(ctx context.Context, status fleet.Status, fetch fetcher) error {
	byScope := w.opts.name != "" && w.opts.output != "json" && w.opts.output != "yaml"
	var changes []change
	present := map[string]bool{}
	add := func(key, text string, c change) {
		present[key] = true
		if w.seen[key] != text {
			w.seen[key] = text
			changes = append(changes, c)
		}
	}
	for _, m := range status.Members {
		if byScope {
			for _, d := range m.Details {
				add(string(d.Kind), fingerprint(stableScope(d)), change{cells: scopeRow(d, status.Time)})
			}
			continue
		}
		add(m.Name, fingerprint(stable(m)), change{memberRow(m, status.Time, w.opts.output == "wide"), m})
	}
	lost := slices.DeleteFunc(slices.Sorted(maps.Keys(w.seen)), func(key string) bool { return present[key] })
	for _, key := range lost {
		delete(w.seen, key)
	}
	if len(lost) > 0 && !byScope {
		more, err := w.unselected(ctx, lost, fetch)
		if err != nil {
			return err
		}
		changes = append(changes, more...)
	}
	return w.write(changes, byScope)
}

// unselected returns what has become of members that the query no longer selects.
func (w *watcher) unselected(ctx context.Context, names []string, fetch fetcher) ([]change, error) {
	all, err := fetch.all(ctx, clusterinformers.MemberQuery{})
	if err != nil {
		return nil, err
	}
	var out []change
	for _, name := range names {
		m := clusterinformers.MemberStatus{Name: name, State: gone, Since: all.Time}
		if i := slices.IndexFunc(all.Members, func(m clusterinformers.MemberStatus) bool { return m.Name == name }); i >= 0 {
			m = all.Members[i]
		}
		out = append(out, change{memberRow(m, all.Time, w.opts.output == "wide"), m})
	}
	return out, nil
}

func (w *watcher) write(changes []change, byScope bool) error {
	if len(changes) == 0 {
		return nil
	}
	if w.opts.output == "json" || w.opts.output == "yaml" {
		for _, c := range changes {
			if err := w.document(c.member); err != nil {
				return err
			}
		}
		return nil
	}
	if w.table == nil {
		columns := memberColumns(w.opts.output == "wide")
		if byScope {
			columns = scopeColumns()
		}
		w.table = console.NewTable(columns...)
	}
	for _, c := range changes {
		w.table.AddRow(c.cells...)
	}
	_, err := w.out.Write(w.table.Render(console.Colored(w.out)))
	w.table.Reset()
	return err
}

func (w *watcher) document(m clusterinformers.MemberStatus) error {
	if w.opts.output == "json" {
		return console.WriteJSON(w.out, m)
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	if w.docs++; w.docs > 1 {
		text = append([]byte("---\n"), text...)
	}
	_, err = w.out.Write(text)
	return err
}

// stable returns a member without what changes all the time.
func stable(m clusterinformers.MemberStatus) clusterinformers.MemberStatus {
	m.Bytes, m.Freshness = 0, nil
	m.ErrorAt, m.LastError, m.LastErrorAt = nil, "", nil
	m.Details = slices.Clone(m.Details)
	for i, d := range m.Details {
		m.Details[i] = stableScope(d)
	}
	return m
}

func stableScope(d clusterinformers.ScopeStatus) clusterinformers.ScopeStatus {
	d.Bytes, d.Applied, d.LastContact = 0, "", nil
	return d
}

// fingerprint returns a text that is the same for equal values.
func fingerprint(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("members: %v", err)) // it was decoded from JSON
	}
	return string(text)
}
