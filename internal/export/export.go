package export

import (
	"context"
	"errors"
	"fmt"
	"io"

	"federator.dev/federator/internal/rows"
)

// Source gives the rows of kinds, all of one revision.
type Source interface {
	// Open returns the rows of a kind, which must be closed.
	Open(ctx context.Context, kind string) (Rows, error)
}

// Rows are those of one kind.
type Rows interface {
	// Name is that of a file, such as deployments.apps.
	Name() string
	Header() *rows.Header
	// Next returns the next row, until the next call, and io.EOF after the last one. Any other error says that
	// there are more, or may be.
	Next(ctx context.Context) (*rows.Row, error)
	Close() error
}

// Format is that of a file.
type Format string

// The formats; each is also the end of a file's name.
const (
	Parquet Format = "parquet"
	NDJSON  Format = "ndjson"
)

// Summary says what a file is of.
type Summary struct {
	Kind     string `json:"kind"`     // of the objects, such as Deployment.apps
	Revision string `json:"revision"` // of the snapshot
	Rows     int64  `json:"rows"`
	// Members are those that the rows are of, whether they have any or not. All that NotSynced does not name are complete.
	Members   []string         `json:"members"`
	NotSynced []rows.NotSynced `json:"notSynced"`
	// Redacted and Invalid count values by column that are null because they are redacted, or not of the column's type.
	Redacted map[string]int64 `json:"redacted,omitempty"`
	Invalid  map[string]int64 `json:"invalid,omitempty"`
}

// writer writes the rows of one file.
type writer interface {
	write(*rows.Row) error
	close(*Summary) error
}

// ErrFormat is for a format that there is not.
var ErrFormat = errors.New("the format is neither parquet nor ndjson")

// IncompleteError is for rows that some members have not told all of.
type IncompleteError struct {
	Kind      string
	NotSynced []rows.NotSynced
}

// Error implements error.
func (e *IncompleteError) Error() string {
	n := e.NotSynced[0]
	text := fmt.Sprintf("%s may be incomplete or old: %s is %s", e.Kind, n.Member, n.State)
	if n.Reason != "" {
		text += " (" + n.Reason + ")"
	}
	if more := len(e.NotSynced) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more members are not synced", more)
	}
	return text
}

// Options say how to write.
type Options struct {
	Format Format
	// AllowIncomplete writes what there is of a kind that is not complete in all members; else that is an *IncompleteError.
	AllowIncomplete bool
	// Overwrite replaces files; else one that exists is an error.
	Overwrite bool
}

// Write writes all rows to w. What was written is of no use with an error.
func Write(ctx context.Context, w io.Writer, o Options, from Rows) (*Summary, error) {
	h := from.Header()
	if len(h.NotSynced) > 0 && !o.AllowIncomplete {
		return nil, &IncompleteError{h.Objects, h.NotSynced}
	}
	to, err := newWriter(w, o.Format, h)
	if err != nil {
		return nil, err
	}
	s := &Summary{Kind: h.Objects, Revision: h.Metadata.ResourceVersion, Members: h.Members, NotSynced: h.NotSynced}
	for {
		row, err := from.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Objects, err)
		}
		s.Rows++
		s.Redacted = count(s.Redacted, h, row.Redacted)
		s.Invalid = count(s.Invalid, h, row.Invalid)
		if err := to.write(row); err != nil {
			return nil, fmt.Errorf("%s: row %d: %w", h.Objects, s.Rows, err)
		}
	}
	if err := to.close(s); err != nil {
		return nil, fmt.Errorf("%s: %w", h.Objects, err)
	}
	return s, nil
}

func newWriter(w io.Writer, format Format, h *rows.Header) (writer, error) {
	l := newLayout(h)
	switch format {
	case Parquet:
		return newParquetWriter(w, l)
	case NDJSON:
		return newNDJSONWriter(w, l), nil
	}
	return nil, fmt.Errorf("%q: %w", format, ErrFormat)
}

func count(counts map[string]int64, h *rows.Header, columns []int) map[string]int64 {
	for _, i := range columns {
		if counts == nil {
			counts = map[string]int64{}
		}
		counts[h.Columns[i].Name]++
	}
	return counts
}
