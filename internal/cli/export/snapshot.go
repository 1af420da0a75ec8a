package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/internal/export"
	"federator.dev/federator/internal/rows"
)

// pageRows bounds a page: each is a request of its own, and the time of a request is bounded.
const pageRows = 50_000

// snapshot is a Source of one snapshot: that of the first kind that is opened.
type snapshot struct {
	client    *queryclient.Client
	namespace string
	query     url.Values // of all lists
	chosen    func(kind string) string
	revision  string // "" before the first
}

// Open implements export.Source.
func (s *snapshot) Open(ctx context.Context, kind string) (export.Rows, error) {
	resource, err := s.client.Resource(ctx, kind)
	if err != nil {
		return nil, err
	}
	query := maps.Clone(s.query)
	query.Set("limit", strconv.Itoa(pageRows))
	if text := s.chosen(kind); text != "" {
		query.Set(rows.ColumnsParameter, text)
	}
	if s.revision != "" {
		query.Set("resourceVersion", s.revision)
		query.Set("resourceVersionMatch", "Exact")
	}
	p := &pages{client: s.client, name: resource.Name, path: resource.Path(s.namespace), query: query}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	p.first = *p.reader.Header()
	switch of := p.first.Metadata.ResourceVersion; s.revision {
	case "":
		s.revision = of
	case of:
	default:
		return nil, errors.Join(fmt.Errorf("%s is of revision %s, not %s", resource.Name, of, s.revision), p.Close())
	}
	return p, nil
}

// pages reads the pages of a list as one.
type pages struct {
	client *queryclient.Client
	name   string
	path   string
	query  url.Values
	first  rows.Header // of the first page

	body   io.ReadCloser
	reader *rows.Reader
	rows   int64  // so far
	total  *int64 // rows that there are, as the first page says that knows it
}

// open opens the page that query asks for.
func (p *pages) open(ctx context.Context) (err error) {
	if p.body, err = p.client.Stream(ctx, p.path, p.query, rows.Accept); err != nil {
		p.body = nil
		return p.explain(err)
	}
	if p.reader, err = rows.NewReader(p.body); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", p.name, err), p.Close())
	}
	return nil
}

// explain says what the status of an expired snapshot means here.
func (p *pages) explain(err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	switch {
	case ok && status.ErrStatus.Code == http.StatusGone:
		return fmt.Errorf("%s: the server has not kept the snapshot of this export, export less at once: %w", p.name, err)
	case ok && status.ErrStatus.Code == http.StatusNotAcceptable:
		return fmt.Errorf("%s: the server does not know rows, it is older than this command: %w", p.name, err)
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// Name implements export.Rows.
func (p *pages) Name() string { return p.name }

// Header implements export.Rows.
func (p *pages) Header() *rows.Header { return &p.first }

// Next implements export.Rows.
func (p *pages) Next(ctx context.Context) (*rows.Row, error) {
	for {
		row, err := p.reader.Next()
		if err == nil {
			p.rows++
		}
		if !errors.Is(err, io.EOF) {
			return row, err
		}
		if err := p.count(); err != nil {
			return nil, err
		}
		token := p.reader.Header().Metadata.Continue
		if token == "" {
			return nil, io.EOF
		}
		if err := p.next(ctx, token); err != nil {
			return nil, err
		}
	}
}

// next opens the page that a token continues with.
func (p *pages) next(ctx context.Context, token string) error {
	if err := p.Close(); err != nil {
		return err
	}
	p.query.Set("continue", token)
	p.query.Del("resourceVersion")
	p.query.Del("resourceVersionMatch")
	if err := p.open(ctx); err != nil {
		return err
	}
	h := p.reader.Header()
	if h.Metadata.ResourceVersion != p.first.Metadata.ResourceVersion || !slices.Equal(h.Columns, p.first.Columns) {
		return fmt.Errorf("%s: a page is of another revision than the first, or has other columns", p.name)
	}
	if !slices.Equal(h.Members, p.first.Members) || !slices.EqualFunc(h.NotSynced, p.first.NotSynced, sameState) {
		return p.changed()
	}
	return nil
}

// sameState reports whether two pages say the same of a member.
func sameState(a, b rows.NotSynced) bool { return a.Member == b.Member && a.State == b.State }

// count wants all pages to tell of as many rows. With selectors they do not tell.
func (p *pages) count() error {
	total, h := p.rows, p.reader.Header()
	switch left := h.Metadata.RemainingItemCount; {
	case left != nil:
		total += *left
	case h.Metadata.Continue != "":
		return nil
	}
	if p.total == nil {
		p.total = &total
	}
	if *p.total != total {
		return p.changed()
	}
	return nil
}

// changed is the error for a page that has more than the first has promised, or less: of one revision, only who may read it changes.
func (p *pages) changed() error {
	return fmt.Errorf("%s: what you may list, or who answers for it, has changed meanwhile", p.name)
}

// Close implements export.Rows.
func (p *pages) Close() error {
	if p.body == nil {
		return nil
	}
	body := p.body
	p.body = nil
	return body.Close()
}
