package catalog

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

// tableGenerator has kube-apiserver's printers. It is not modified after initialization.
var tableGenerator = printers.NewTableGenerator().With(internalversion.AddHandlers)

// builtin prints a kind of the library's scheme.
type builtin struct {
	kind    string
	headers []metav1.TableColumnDefinition
	empty   []any // the cells of an object without fields
	prune   *prune
}

// withoutPrinter are kinds that have a printer which kube-apiserver does not use.
var withoutPrinter = map[schema.GroupKind]bool{{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}: true}

// builtinPrinter returns the printer of a kind of the library's scheme.
func builtinPrinter(gvk schema.GroupVersionKind) printer {
	if withoutPrinter[gvk.GroupKind()] {
		return defaultPrinter{}
	}
	object, err := legacyscheme.Scheme.New(internalOf(gvk))
	if err != nil {
		return defaultPrinter{}
	}
	t, err := tableGenerator.GenerateTable(object, printers.GenerateOptions{Wide: true})
	if err != nil { // there is none
		return defaultPrinter{}
	}
	b := &builtin{kind: gvk.Kind, headers: t.ColumnDefinitions, prune: prunes[gvk.GroupKind()]}
	if row, err := singleRow(t.Rows); err == nil {
		b.empty = row.Cells
	}
	return b
}

func (b *builtin) columns() []metav1.TableColumnDefinition { return b.headers }

func (b *builtin) row(body []byte) (metav1.TableRow, error) {
	version, err := apiVersionOf(body)
	if err != nil {
		return metav1.TableRow{}, err
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return metav1.TableRow{}, err
	}
	if b.prune != nil {
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		*buffer = b.prune.append((*buffer)[:0], body)
		body = *buffer
	}
	object, err := decode(body, gv.WithKind(b.kind))
	if err != nil {
		return metav1.TableRow{}, err
	}
	t, err := tableGenerator.GenerateTable(object, printers.GenerateOptions{Wide: true, NoHeaders: true})
	if err != nil {
		return metav1.TableRow{}, err
	}
	return singleRow(t.Rows)
}

// singleRow returns the row of a table of one object, without the object.
func singleRow(rows []metav1.TableRow) (metav1.TableRow, error) {
	if len(rows) != 1 {
		return metav1.TableRow{}, fmt.Errorf("%d rows of one object", len(rows))
	}
	rows[0].Object = runtime.RawExtension{}
	return rows[0], nil
}

// metadataDocs has the descriptions of the fields of an object's metadata.
var metadataDocs = metav1.ObjectMeta{}.SwaggerDoc()

// aggregatedPrinter returns the printer of a built-in kind that kube-apiserver serves from
// another scheme than the library's; nil for other kinds.
func aggregatedPrinter(kind schema.GroupKind) printer {
	switch kind {
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return defaultPrinter{}
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return apiServicePrinter{}
	}
	return nil
}

// defaultPrinter prints as rest.NewDefaultTableConvertor of k8s.io/apiserver, for kinds
// without a printer of their own.
type defaultPrinter struct{}

func (defaultPrinter) columns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metadataDocs["name"]},
		{Name: "Created At", Type: "date", Description: metadataDocs["creationTimestamp"]},
	}
}

func (defaultPrinter) row(body []byte) (metav1.TableRow, error) {
	m, err := metadataOf(body)
	if err != nil {
		return metav1.TableRow{}, err
	}
	return metav1.TableRow{Cells: []any{m.Name, m.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z07:00")}}, nil
}

// metadataOf decodes only an object's metadata.
func metadataOf(body []byte) (*metav1.PartialObjectMetadata, error) {
	var m metav1.PartialObjectMetadata
	if err := kjson.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	return &m, nil
}

// apiServicePrinter prints APIServices as the registry of k8s.io/kube-aggregator
// does.
type apiServicePrinter struct{}

func (apiServicePrinter) columns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metadataDocs["name"]},
		{Name: "Service", Type: "string", Description: "The reference to the service that hosts this API endpoint."},
		{Name: "Available", Type: "string", Description: "Whether this service is available."},
		{Name: "Age", Type: "string", Description: metadataDocs["creationTimestamp"]},
	}
}

func (apiServicePrinter) row(body []byte) (metav1.TableRow, error) {
	var s apiregistration.APIService
	if err := kjson.Unmarshal(body, &s); err != nil {
		return metav1.TableRow{}, err
	}
	service := "Local"
	if s.Spec.Service != nil {
		service = s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
	}
	available := string(apiregistration.ConditionUnknown)
	for _, c := range s.Status.Conditions {
		if c.Type != apiregistration.Available {
			continue
		}
		available = string(c.Status)
		if c.Status != apiregistration.ConditionTrue && c.Reason != "" {
			available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
		break
	}
	return metav1.TableRow{Cells: []any{s.Name, service, available, table.ConvertToHumanReadableDateType(s.CreationTimestamp)}}, nil
}
