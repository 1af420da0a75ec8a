package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
)

// selection says which objects of a kind a list or a watch returns.
type selection struct {
	kind      *Kind
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (c *call) selection() (*selection, error) {
	s := &selection{kind: c.kind, namespace: c.namespace}
	var err error
	if s.labels, err = labels.Parse(c.query.Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(c.query.Get("fieldSelector")); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, r := range s.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" && !slices.Contains(c.kind.Selectable, r.Field) {
			return nil, apierrors.NewBadRequest(c.kind.notSelectable(r.Field))
		}
	}
	return s, nil
}

func (k *Kind) notSelectable(field string) string {
	if k.builtin {
		return fmt.Sprintf("%q is not a known field selector: only %q, %q", field, "metadata.name", "metadata.namespace")
	}
	return "field label not supported: " + field
}

// has reports whether an object is selected; nil is not.
func (s *selection) has(it *item) bool {
	if it == nil || s.namespace != "" && !strings.HasPrefix(it.key, s.namespace+"/") {
		return false
	}
	if !s.labels.Empty() {
		set, _, _ := unstructured.NestedStringMap(it.object, "metadata", "labels")
		if !s.labels.Matches(labels.Set(set)) {
			return false
		}
	}
	for _, r := range s.fields.Requirements() {
		value, _, _ := unstructured.NestedFieldNoCopy(it.object, strings.Split(r.Field, ".")...)
		text := ""
		if value != nil {
			text = fmt.Sprint(value)
		}
		if (text == r.Value) != (r.Operator != "!=") {
			return false
		}
	}
	return true
}

// listed is what a list returns, before it is written.
type listed struct {
	items    []*item
	revision uint64
	next     string // continue token
	remain   *int64
}

// token is kube-apiserver's continue token: base64 of it as JSON.
type token struct {
	Version  string `json:"v"`
	Revision uint64 `json:"rv"`
	Start    string `json:"start"`
}

func (s *Server) listLocked(c *call) ([]byte, error) {
	sel, err := c.selection()
	if err != nil {
		return nil, err
	}
	l := &listed{revision: s.revision}
	from := ""
	if text := c.query.Get("continue"); text != "" {
		var t token
		data, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			err = json.Unmarshal(data, &t)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
		}
		if t.Revision < s.forgot {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.")
		}
		l.revision, from = t.Revision, t.Start
	} else if at, err := parseRevision(c.query.Get("resourceVersion")); err != nil {
		return nil, err
	} else if at > s.revision {
		return nil, tooLarge(at, s.revision)
	}
	for _, it := range s.atLocked(c.kind, l.revision) {
		if it.key >= from && sel.has(it) {
			l.items = append(l.items, it)
		}
	}
	if limit, _ := strconv.Atoi(c.query.Get("limit")); limit > 0 && limit < len(l.items) && c.query.Get("resourceVersion") != "0" {
		text, err := json.Marshal(token{"meta.k8s.io/v1", l.revision, l.items[limit-1].key + "\x00"})
		if err != nil {
			return nil, err
		}
		l.next = base64.RawURLEncoding.EncodeToString(text)
		if sel.labels.Empty() && sel.fields.Empty() {
			remain := int64(len(l.items) - limit)
			l.remain = &remain
		}
		l.items = l.items[:limit]
	}
	return l.write(c)
}

// atLocked returns the objects of a kind at a revision that the log reaches, by key.
func (s *Server) atLocked(k *Kind, revision uint64) []*item {
	at := s.objects[k]
	if revision < s.revision {
		at = map[string]*item{}
		for key, it := range s.objects[k] {
			at[key] = it
		}
		for _, e := range slices.Backward(s.log) {
			if e.revision <= revision {
				break
			}
			switch {
			case e.kind != k:
			case e.before == nil:
				delete(at, e.after.key)
			default:
				at[e.before.key] = e.before
			}
		}
	}
	items := make([]*item, 0, len(at))
	for _, it := range at {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b *item) int { return strings.Compare(a.key, b.key) })
	return items
}

func parseRevision(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q: %v", text, err))
	}
	return n, nil
}

func tooLarge(revision, now uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, now), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

func (l *listed) meta() metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: strconv.FormatUint(l.revision, 10), Continue: l.next, RemainingItemCount: l.remain}
}

// write writes the list as the call accepts it.
func (l *listed) write(c *call) ([]byte, error) {
	accept := c.header.Get("Accept")
	switch {
	case strings.Contains(accept, "as=Table"):
		return l.table(c)
	case strings.Contains(accept, "as=PartialObjectMetadataList"):
		out := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: l.meta()}
		for _, it := range l.items {
			m, err := it.metadata()
			if err != nil {
				return nil, err
			}
			out.Items = append(out.Items, *m)
		}
		return json.Marshal(out)
	}
	meta, err := json.Marshal(l.meta())
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, c.kind.Kind+"List", c.kind.GroupVersion().String(), meta)
	for i, it := range l.items {
		if i > 0 {
			b.WriteByte(',')
		}
		if c.kind.builtin { // items of built-in lists have no kind
			item := maps.Clone(it.object)
			delete(item, "kind")
			delete(item, "apiVersion")
			text, err := json.Marshal(item)
			if err != nil {
				return nil, err
			}
			b.Write(text)
			continue
		}
		b.Write(it.text)
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

func (it *item) metadata() (*metav1.PartialObjectMetadata, error) {
	m := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(it.text, m); err != nil {
		return nil, err
	}
	m.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}
	return m, nil
}

const nameDescription = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"

// table writes the columns that a custom resource declares.
func (l *listed) table(c *call) ([]byte, error) {
	t := metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, ListMeta: l.meta(), Rows: []metav1.TableRow{}}
	t.ColumnDefinitions = []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: nameDescription}}
	for _, col := range c.kind.columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, col.TableColumnDefinition)
	}
	for _, it := range l.items {
		m, err := it.metadata()
		if err != nil {
			return nil, err
		}
		row := metav1.TableRow{Cells: []any{m.Name}}
		for i := range c.kind.columns {
			row.Cells = append(row.Cells, c.kind.columns[i].cell(it.object))
		}
		switch c.query.Get("includeObject") {
		case "None":
		case "Object":
			row.Object.Raw = it.text
		default:
			row.Object.Object = m
		}
		t.Rows = append(t.Rows, row)
	}
	return json.Marshal(t)
}

func (c *column) cell(object map[string]any) any {
	found, err := c.path.FindResults(object)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	value := found[0][0].Interface()
	if text, ok := value.(string); ok && c.Type == "date" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return "<invalid>"
		}
		return duration.HumanDuration(time.Since(at))
	}
	if c.Type == "string" {
		if _, ok := value.(string); !ok {
			return fmt.Sprint(value)
		}
	}
	return value
}
