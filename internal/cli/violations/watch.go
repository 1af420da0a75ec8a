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
	stream, err := a.Open(ctx, "/query/v1/violations", query, "application/json")
	if err != nil {
		return err
	}
	defer stream.Close()
	p.rows = nil
	events := json.NewDecoder(stream)
	for {
		var line json.RawMessage
		err := events.Decode(&line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if err := p.line(line); err != nil {
			return err
		}
	}
}

func (p *watchPrinter) line(line json.RawMessage) error {
	var event struct {
		Type   watch.EventType
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	var err error
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		var found policyquery.Finding
		if err = json.Unmarshal(event.Object, &found); err == nil {
			for _, cells := range rows(found) {
				p.rows = append(p.rows, metav1.TableRow{Cells: append([]any{string(event.Type)}, cells...)})
			}
		}
	case watch.Bookmark:
		var mark policyquery.Bookmark
		if err = json.Unmarshal(event.Object, &mark); err == nil {
			p.version = mark.ResourceVersion
			p.marks++
			err = p.marked(mark)
		}
	case watch.Error:
		status := apierrors.StatusError{}
		if err = json.Unmarshal(event.Object, &status.ErrStatus); err == nil {
			return &status
		}
	default:
		err = fmt.Errorf("unknown event type %q", event.Type)
	}
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	if p.json {
		_, err = p.out.Write(append(line, '\n'))
	}
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
