package catalog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/registry/rest"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
)

type digest = [sha256.Size]byte

// definition is the cached part of a CustomResourceDefinition. Its schemas stay in the
// index, and are read when OpenAPI is requested. Members with the same one share it.
type definition struct {
	kind    aggregate.Kind
	content digest                    // hash of its spec: equal in members with the same definition
	object  aggregate.Object          // of one of them
	tables  map[string]*customPrinter // by version
}

// definitionSet are the definitions of a snapshot.
type definitionSet struct {
	byKind map[aggregate.Kind]*kindDefinitions
}

// kindDefinitions are those of one kind.
type kindDefinitions struct {
	common   *definition            // that of most members
	byMember map[string]*definition // by name
}

// of returns a kind's definition in a member or, when member is "" or has none, that of most
// members; nil when there is none.
func (s *definitionSet) of(member string, kind aggregate.Kind) *definition {
	d := s.byKind[kind]
	if d == nil {
		return nil
	}
	if own := d.byMember[member]; own != nil {
		return own
	}
	return d.common
}

// definitions returns the definitions in a snapshot. It reuses those that have been parsed
// before. c.mu must be held.
func (c *Catalog) definitions(snapshot *aggregate.Snapshot) *definitionSet {
	set := &definitionSet{byKind: map[aggregate.Kind]*kindDefinitions{}}
	read := map[aggregate.Revision]*definition{}
	counts := map[*kindDefinitions]map[digest]int{}
	shared := make(map[digest]*definition)
	for _, d := range c.parsed {
		shared[d.content] = d
	}
	var buffer []byte
	for object := range listAll(snapshot, crdKind) {
		d := c.parsed[object.Revision()]
		if d == nil {
			var err error
			if buffer, err = object.AppendBody(buffer[:0]); err == nil {
				d = parseDefinition(buffer, object, shared)
			} else {
				d = &definition{}
			}
		}
		read[object.Revision()] = d
		if d.kind == "" {
			continue // its group or kind is not known
		}
		kind := set.byKind[d.kind]
		if kind == nil {
			kind = &kindDefinitions{byMember: map[string]*definition{}}
			set.byKind[d.kind] = kind
			counts[kind] = map[digest]int{}
		}
		kind.byMember[object.Member()] = d
		counts[kind][d.content]++
		if kind.common == nil || counts[kind][d.content] > counts[kind][kind.common.content] {
			kind.common = d
		}
	}
	c.parsed = read
	return set
}

// maxColumns bounds the cost of a definition for every row: members may not be real API
// servers, and so not validate it.
const (
	maxColumns = 64
	maxPath    = 1024
)

// parseDefinition extracts from a definition's JSON what tables need, unless it is one of
// those that are shared, by their content. For an invalid one the kind is empty.
func parseDefinition(body []byte, object aggregate.Object, shared map[digest]*definition) *definition {
	content := sha256.Sum256(canonjson.Get(body, "spec"))
	if d := shared[content]; d != nil {
		return d
	}
	d := &definition{object: object, content: content}
	d.parse(body)
	shared[content] = d
	return d
}

func (d *definition) parse(body []byte) {
	var crd struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name    string                                           `json:"name"`
				Columns []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := kjson.Unmarshal(body, &crd); err != nil || crd.Spec.Group == "" || crd.Spec.Names.Kind == "" {
		return
	}
	d.kind = aggregate.MakeKind(crd.Spec.Names.Kind, crd.Spec.Group)
	d.tables = map[string]*customPrinter{}
	for _, v := range crd.Spec.Versions {
		d.tables[v.Name] = newCustomPrinter(v.Columns)
	}
}

// printer returns the printer of a version, or nameAndAge without a definition.
func (d *definition) printer(version string) printer {
	if d != nil && d.tables[version] != nil {
		return d.tables[version]
	}
	return nameAndAge
}

// nameAndAge is the printer of kinds without a definition.
var nameAndAge = newCustomPrinter(nil)

// ageColumn is the column that API servers add where none is defined.
var ageColumn = apiextensionsv1.CustomResourceColumnDefinition{
	Name: "Age", Type: "date", Description: metadataDocs["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
}

// customPrinter prints rows by additionalPrinterColumns, as API servers do.
type customPrinter struct {
	headers []metav1.TableColumnDefinition
	paths   []string  // JSONPaths of the headers after the name
	pool    sync.Pool // of rest.TableConvertor: their JSONPaths are for one goroutine
}

func newCustomPrinter(columns []apiextensionsv1.CustomResourceColumnDefinition) *customPrinter {
	if len(columns) == 0 {
		columns = []apiextensionsv1.CustomResourceColumnDefinition{ageColumn}
	}
	columns = columns[:min(len(columns), maxColumns)]
	for i, c := range columns {
		if err := checkCost(c.JSONPath); err != nil {
			columns = columns[:i] // as API servers do if a path is invalid
			break
		}
	}
	p := &customPrinter{}
	for _, c := range columns {
		p.paths = append(p.paths, c.JSONPath)
	}
	p.pool.New = func() any {
		// With an error it returns a convertor of the columns before the invalid one.
		c, _ := tableconvertor.New(columns)
		return c
	}
	c := p.pool.Get().(rest.TableConvertor)
	defer p.pool.Put(c)
	if t, err := c.ConvertToTable(noContext, &unstructured.UnstructuredList{}, nil); err == nil {
		p.headers = t.ColumnDefinitions
	}
	return p
}

// noContext is for convertors, which ignore it.
var noContext context.Context

var errCostly = errors.New("the path is too costly")

// checkCost refuses paths whose cost is not roughly linear in the size of the object.
func checkCost(path string) error {
	if len(path) > maxPath || strings.Count(path, "..") > 1 || strings.Count(path, "?") > 8 {
		return fmt.Errorf("%.100q: %w", path, errCostly)
	}
	return nil
}

func (p *customPrinter) columns() []metav1.TableColumnDefinition { return p.headers }

func (p *customPrinter) row(body []byte) (metav1.TableRow, error) {
	var object unstructured.Unstructured
	if err := kjson.Unmarshal(body, &object.Object); err != nil {
		return metav1.TableRow{}, err
	}
	c := p.pool.Get().(rest.TableConvertor)
	defer p.pool.Put(c)
	t, err := c.ConvertToTable(noContext, &object, nil)
	if err != nil {
		return metav1.TableRow{}, err
	}
	return singleRow(t.Rows)
}
