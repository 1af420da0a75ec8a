package sim

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tidwall/btree"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// listOptions are the parameters of LIST and WATCH.
type listOptions struct {
	metainternal.ListOptions
	rv     uint64 // of ResourceVersion, 0 when that is empty or "0"
	filter *filter
}

// continueToken is kube-apiserver's: base64 of this as JSON.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion uint64 `json:"rv"`
	StartKey        string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

func parseListOptions(query url.Values, t *table, c *call) (*listOptions, error) {
	var v1 metav1.ListOptions
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &v1, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var opts listOptions
	if err := metainternal.Convert_v1_ListOptions_To_internalversion_ListOptions(&v1, &opts.ListOptions, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := metavalidation.ValidateListOptions(&opts.ListOptions, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if opts.ResourceVersion != "" {
		rv, err := strconv.ParseUint(opts.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", opts.ResourceVersion, err))
		}
		opts.rv = rv
	}
	var err error
	opts.filter, err = newFilter(t, c, &opts.ListOptions)
	return &opts, err
}

// A page is what a LIST answers with.
type page struct {
	rv        uint64
	items     []*item
	next      string // continue token
	remaining int64  // after this page; unknown, -1, when selectors filter
}

func (m *Member) serveList(w http.ResponseWriter, r *http.Request, c *call) error {
	opts, err := parseListOptions(r.URL.Query(), c.table, c)
	if err != nil {
		return err
	}
	content, rv, from, err := m.contentFor(c.table, opts)
	if err != nil {
		return err
	}
	p := page{rv: rv, remaining: -1}
	limit := int(opts.Limit)
	if opts.ResourceVersion == "0" && opts.Continue == "" {
		limit = 0 // kube-apiserver answers "0" from its cache and ignores the limit
	}
	more, filterErr := 0, error(nil)
	scan(content, c.namespace, from, func(it *item) bool {
		var keep bool
		if keep, filterErr = opts.filter.keeps(it); filterErr != nil {
			return false
		}
		switch {
		case !keep:
		case limit == 0 || len(p.items) < limit:
			p.items = append(p.items, it)
		default:
			more++
			return opts.filter.all // only then is the number of the rest known
		}
		return true
	})
	if filterErr != nil {
		return filterErr
	}
	if more > 0 {
		last := p.items[len(p.items)-1].key
		token, err := json.Marshal(continueToken{continueVersion, rv, last + "\x00"})
		if err != nil {
			return err
		}
		p.next = base64.RawURLEncoding.EncodeToString(token)
		if opts.filter.all {
			p.remaining = int64(more)
		}
	}
	switch media := metadataAccepted(r); {
	case media != "":
		return c.writeMetadata(w, r, &p, media)
	case c.protobuf:
		return c.writeProtoList(w, r, &p)
	}
	return c.writeJSONList(w, r, &p)
}

// contentFor finds the content that a LIST asks for: the present one, or an older one.
func (m *Member) contentFor(t *table, opts *listOptions) (content *btree.Map[string, *item], rv uint64, from string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.removed {
		return nil, 0, "", notServed(t.kind.GroupResource())
	}
	exact := opts.rv > 0 && (opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		opts.ResourceVersionMatch == "" && opts.Limit > 0)
	at := opts.rv
	if opts.Continue != "" {
		token, err := parseContinue(opts.Continue)
		if err != nil {
			return nil, 0, "", apierrors.NewBadRequest(err.Error())
		}
		exact, at, from = true, token.ResourceVersion, token.StartKey
	}
	switch {
	case at > m.rv:
		return nil, 0, "", tooLarge(at, m.rv)
	case !exact:
		return t.objects.Copy(), m.rv, "", nil
	case at < t.compacted:
		return nil, 0, "", apierrors.NewResourceExpired("The provided continue parameter or resourceVersion is too old to display a consistent list result.")
	}
	return t.at(at), at, from, nil
}

func parseContinue(s string) (continueToken, error) {
	var token continueToken
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &token)
	}
	if err != nil || token.APIVersion != continueVersion {
		return token, fmt.Errorf("continue key is not valid: %w", err)
	}
	return token, nil
}

func tooLarge(rv, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rv, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

func (p *page) meta() *metav1.ListMeta {
	meta := &metav1.ListMeta{ResourceVersion: formatRV(p.rv), Continue: p.next}
	if p.remaining > 0 {
		meta.RemainingItemCount = &p.remaining
	}
	return meta
}

func (c *call) writeJSONList(w http.ResponseWriter, r *http.Request, p *page) error {
	k := &c.table.kindCodec
	itemVersion := "" // items of built-in lists carry no kind
	if !k.builtin {
		itemVersion = c.version
	}
	size := 0
	for i := 0; i < len(p.items) && size <= gzipAbove; i++ {
		size += max(len(p.items[i].raw), 512)
	}
	out, finish := startBody(w, r, http.StatusOK, runtime.ContentTypeJSON, size)
	defer finish()
	buf := bufio.NewWriterSize(out, 64<<10)
	fmt.Fprintf(buf, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, k.kind.Kind+"List", k.gvk(c.version).GroupVersion(), mustJSON(p.meta()))
	for i, it := range p.items {
		body, err := k.json(it, itemVersion)
		if err != nil || r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // half an answer must not look whole
		}
		if i > 0 {
			buf.WriteByte(',')
		}
		buf.Write(body)
	}
	buf.WriteString("]}\n")
	_ = buf.Flush() // the client may be gone
	return nil
}

// writeProtoList writes runtime.Unknown{TypeMeta, Raw: <Kind>List{metadata: 1, items: 2}}
// item by item, so that no list is ever in memory whole.
func (c *call) writeProtoList(w http.ResponseWriter, r *http.Request, p *page) error {
	k := &c.table.kindCodec
	meta, err := p.meta().Marshal()
	if err != nil {
		return err
	}
	typeMeta, err := (&runtime.TypeMeta{APIVersion: k.gvk(c.version).GroupVersion().String(), Kind: k.kind.Kind + "List"}).Marshal()
	if err != nil {
		return err
	}
	size := fieldSize(len(meta))
	for _, it := range p.items {
		n, err := k.protoSize(it)
		if err != nil {
			return err
		}
		size += fieldSize(n)
	}
	out, finish := startBody(w, r, http.StatusOK, runtime.ContentTypeProtobuf, size)
	defer finish()
	buf := bufio.NewWriterSize(out, 64<<10)
	buf.WriteString(protoPrefix)
	writeField(buf, 1, typeMeta)
	writeTag(buf, 2, size)
	writeField(buf, 1, meta)
	for _, it := range p.items {
		raw, err := k.encode(it)
		if err != nil || r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		writeField(buf, 2, raw)
	}
	writeTag(buf, 3, 0) // contentEncoding and contentType, as the generated code writes them
	writeTag(buf, 4, 0)
	_ = buf.Flush()
	return nil
}

// writeTag starts a length-delimited field.
func writeTag(buf *bufio.Writer, field byte, size int) {
	buf.WriteByte(field<<3 | 2)
	buf.Write(binary.AppendUvarint(buf.AvailableBuffer(), uint64(size)))
}

func writeField(buf *bufio.Writer, field byte, data []byte) {
	writeTag(buf, field, len(data))
	buf.Write(data)
}

// fieldSize is the size of a length-delimited field with a one-byte tag.
func fieldSize(n int) int {
	var b [binary.MaxVarintLen64]byte
	return 1 + binary.PutUvarint(b[:], uint64(n)) + n
}
