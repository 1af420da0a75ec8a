package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
)

// watchHistory prints what happens until the context ends. A watch that ends is resumed; where what follows is not kept, that is said.
func watchHistory(cmd *cobra.Command, client *queryclient.Client, f *queryclient.Flags, query url.Values) error {
	p := &printer{out: cmd.OutOrStdout(), json: f.Output == "json", wide: f.Output == "wide"}
	query.Set("watch", "true")
	for {
		query.Del("after")
		if p.after != "" {
			query.Set("after", p.after)
		}
		p.marks = 0
		err := p.watch(cmd.Context(), client, query)
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case apierrors.IsResourceExpired(err) && p.after != "":
			fmt.Fprintln(cmd.ErrOrStderr(), "What happened meanwhile is not kept.")
			p.after = ""
		case err != nil:
			return err
		case p.marks == 0: // it would never make progress
			return errors.New("the watch ended before its first bookmark")
		}
	}
}

// printer prints the events of watches.
type printer struct {
	out        io.Writer
	json, wide bool

	after  string // up to where all has been printed
	marks  int    // bookmarks of the current watch
	rows   []metav1.TableRow
	headed bool
	tabs   interface {
		io.Writer
		Flush() error
	}
}

func (p *printer) watch(ctx context.Context, client *queryclient.Client, query url.Values) error {
	p.rows = nil
	return client.Watch(ctx, "/query/v1/history", query, p.event)
}

func (p *printer) event(e queryclient.Event, line []byte) error {
	switch e.Type {
	case watch.Added:
		var r history.Record
		if err := json.Unmarshal(e.Object, &r); err != nil {
			return err
		}
		p.rows = append(p.rows, metav1.TableRow{Cells: cells(&r)})
	case watch.Bookmark:
		var mark policyquery.HistoryMark
		if err := json.Unmarshal(e.Object, &mark); err != nil {
			return err
		}
		p.after = mark.After
		p.marks++
		if err := p.print(); err != nil {
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

// print prints the rows since the last bookmark.
func (p *printer) print() error {
	if p.json || len(p.rows) == 0 {
		p.rows = nil
		return nil
	}
	if p.tabs == nil {
		p.tabs = printers.GetNewTabWriter(p.out) // it remembers widths
	}
	table := &metav1.Table{Rows: p.rows, ColumnDefinitions: columns()}
	err := printers.NewTablePrinter(printers.PrintOptions{Wide: p.wide, NoHeaders: p.headed}).PrintObj(table, p.tabs)
	if err == nil {
		err = p.tabs.Flush()
	}
	p.rows, p.headed = nil, true
	return err
}
