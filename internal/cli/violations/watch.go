package violations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/policyquery"
)

// watchViolations prints the violations and every change, until the context ends. A watch
// that ends is resumed; if its resourceVersion has expired, all violations are printed
// again.
func watchViolations(cmd *cobra.Command, f *queryclient.Flags, query url.Values) error {
	if f.Output == "yaml" {
		return errors.New("--output yaml cannot be used with --watch; json prints a line for each event")
	}
	a, err := f.Client()
	if err != nil {
		return err
	}
	p := &watchPrinter{out: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(), json: f.Output == "json", wide: f.Output == "wide"}
	query = maps.Clone(query)
	query.Set("watch", "true")
	for {
		query.Set("resourceVersion", p.version)
		p.marks = 0
		err := p.watch(cmd.Context(), a, query)
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case apierrors.IsResourceExpired(err) && query.Get("resourceVersion")+p.version != "":
			fmt.Fprintln(cmd.ErrOrStderr(), "The watch has expired; all violations are printed again.")
			p.version = ""
		case err != nil:
			return err
		case p.marks == 0: // it would never make progress
			return errors.New("the watch ended before its first bookmark")
		}
	}
}

// watchPrinter prints the events of watches, as kubectl get --watch does.
type watchPrinter struct {
	out, stderr io.Writer
	json, wide  bool

	version string // up to which all has been printed
	marks   int    // bookmarks of the current watch
	rows    []metav1.TableRow
	headed  bool
	tabs    interface {
		io.Writer
		Flush() error
	}
	withheld []string
}

func (p *watchPrinter) watch(ctx context.Context, a *queryclient.Client, query url.Values) error {
	p.rows = nil
	return a.Watch(ctx, "/query/v1/violations", query, p.event)
}

func (p *watchPrinter) event(e queryclient.Event, line []byte) error {
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		var found policyquery.Finding
		if err := json.Unmarshal(e.Object, &found); err != nil {
			return err
		}
		for _, cells := range rows(found) {
			p.rows = append(p.rows, metav1.TableRow{Cells: append([]any{string(e.Type)}, cells...)})
		}
	case watch.Bookmark:
		var mark policyquery.Bookmark
		if err := json.Unmarshal(e.Object, &mark); err != nil {
			return err
		}
		p.version = mark.ResourceVersion
		p.marks++
		if err := p.marked(mark); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown event type %q", e.Type)
	}
	if !p.json {
		return nil
	}
	_, err := p.out.Write(append(line, '\n'))
	return err
}

// marked prints the rows since the last bookmark.
func (p *watchPrinter) marked(mark policyquery.Bookmark) error {
	for _, name := range mark.Withheld {
		if !slices.Contains(p.withheld, name) {
			fmt.Fprintf(p.stderr, "policy %s is withheld: it reads more of the fleet than you may read\n", name)
		}
	}
	p.withheld = mark.Withheld
	if p.json || len(p.rows) == 0 {
		p.rows = nil
		return nil
	}
	if p.tabs == nil {
		p.tabs = printers.GetNewTabWriter(p.out) // it remembers widths
	}
	table := &metav1.Table{Rows: p.rows, ColumnDefinitions: append([]metav1.TableColumnDefinition{{Name: "Event", Type: "string"}}, columns()...)}
	err := printers.NewTablePrinter(printers.PrintOptions{Wide: p.wide, NoHeaders: p.headed}).PrintObj(table, p.tabs)
	if err == nil {
		err = p.tabs.Flush()
	}
	p.rows, p.headed = nil, true
	return err
}
