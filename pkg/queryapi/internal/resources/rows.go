package resources

import (
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/columns"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// chooseColumns sets the columns of rows. Other formats have no parameters for them.
func (q *request) chooseColumns() error {
	p := q.params
	if q.format.shape != asRows {
		if p.Columns != "" || p.NoPrinterColumns {
			return selection.NewBadParameter(rows.ColumnsParameter+" or "+rows.PrinterParameter, "is supported for rows only: accept "+rows.Accept)
		}
		return nil
	}
	var chosen []rows.Chosen
	var err error
	if p.Columns != "" {
		if chosen, err = rows.ParseChosen(p.Columns); err != nil {
			return apierrors.NewBadRequest("parameter \"columns\": " + err.Error())
		}
	}
	plain := q.ask != nil && q.ask.Plain
	if q.rowColumns, err = columns.New(q.resource, chosen, !p.NoPrinterColumns && !plain); err != nil {
		return apierrors.NewBadRequest("parameter \"columns\": " + err.Error())
	}
	return nil
}

// pin keeps the snapshot for the next request of the caller.
func (q *request) pin() {
	q.options.Pins.Pin(q.snapshot, q.caller.User().GetName(), q.options.Index.Snapshot(), q.options.Now())
}

// writeRows sends a list as rows. Its snapshot is kept, so that lists of other kinds can be of the same revision.
func (q *request) writeRows(meta ListMeta, members []string, stale []selection.NotSynced, objects iter.Seq2[aggregate.Object, error]) error {
	q.pin()
	around, err := RowsEnvelope(meta, q.resource.Kind, q.rowColumns.Columns(), members, stale)
	if err != nil {
		return err
	}
	return q.send(q.format.contentType(), around, objects)
}

// RowsEnvelope makes the envelope of a list as rows.
func RowsEnvelope(meta ListMeta, kind aggregate.Kind, columns []rows.Column, members []string, stale []selection.NotSynced) (*Envelope, error) {
	h := rows.Header{Metadata: rows.Metadata(meta), Objects: string(kind), Columns: columns, Members: members, NotSynced: []rows.NotSynced{}}
	for _, n := range stale {
		h.NotSynced = append(h.NotSynced, rows.NotSynced{Member: n.Member, Kind: string(n.Kind), State: n.State.String(), Reason: n.Reason, Age: n.Age})
	}
	head, err := rows.AppendHeader(nil, &h)
	return &Envelope{Head: head, Rows: true}, err
}

// counted counts objects.
func counted(objects iter.Seq2[aggregate.Object, error], n *int) iter.Seq2[aggregate.Object, error] {
	return func(yield func(aggregate.Object, error) bool) {
		for o, err := range objects {
			if err == nil {
				*n++
			}
			if !yield(o, err) {
				return
			}
		}
	}
}
