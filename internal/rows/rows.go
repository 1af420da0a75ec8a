package rows

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// MediaType is that of rows, and Accept what a request for them accepts.
const (
	MediaType = "application/x-ndjson"
	Accept    = MediaType + ";as=Rows"
)

// Kind and APIVersion are those of a Header.
const (
	Kind       = "RowList"
	APIVersion = "query.federator.dev/v1"
)

// Parameters of a request for rows.
const (
	ColumnsParameter = "columns"        // chosen columns, as Chosen is written, separated by commas
	PrinterParameter = "printerColumns" // false: without the kind's own columns
)

// Type is the type of a column.
type Type string

// The types. A quantity is a number with a unit, as Kubernetes writes it, and a list the values at a path that
// goes through lists; labels are a map.
const (
	String    Type = "string"
	Int       Type = "int"
	Number    Type = "number"
	Bool      Type = "bool"
	Timestamp Type = "timestamp"
	Quantity  Type = "quantity"
	List      Type = "list"
	Labels    Type = "labels"
	JSON      Type = "json"
)

// Column describes the cells at one place of all rows.
type Column struct {
	Name        string `json:"name"`
	Type        Type   `json:"type"`
	Description string `json:"description,omitempty"`
}

// Metadata is that of a list of Kubernetes.
type Metadata struct {
	ResourceVersion    string            `json:"resourceVersion"`
	Continue           string            `json:"continue,omitempty"`
	RemainingItemCount *int64            `json:"remainingItemCount,omitempty"`
	Annotations        map[string]string `json:"annotations,omitempty"`
}

// NotSynced says that rows are not fresh for a member, or incomplete.
type NotSynced struct {
	Member string `json:"member"`
	Kind   string `json:"kind"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Age is the time since the last contact, as Go writes it; "" without any.
	Age string `json:"age,omitempty"`
}

// Header is the first line.
type Header struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Metadata   Metadata `json:"metadata"`
	// Objects is the kind of the objects, as kubectl writes it: Deployment.apps.
	Objects string   `json:"objects"`
	Columns []Column `json:"columns"`
	// Members are those that the rows are of, by name, whether they have any or not; all that NotSynced does not
	// name are complete at the revision.
	Members   []string    `json:"members"`
	NotSynced []NotSynced `json:"notSynced"`
}

// Fixed are the columns that every kind has, in this order.
var Fixed = []Column{
	{"member", String, "The member that has the object, as <namespace>/<name> of its Cluster."},
	{"namespace", String, "The object's namespace; null for objects of the cluster."},
	{"name", String, "The object's name."},
	{"uid", String, "The object's UID in its member."},
	{"created", Timestamp, "When the object was created."},
	{"labels", Labels, "The object's labels."},
}

// AppendEnd appends the last line of a response with so many rows.
func AppendEnd(dst []byte, n int) []byte {
	dst = append(dst, `{"end":{"rows":`...)
	return append(strconv.AppendInt(dst, int64(n), 10), "}}\n"...)
}

// AppendHeader appends the line of a header.
func AppendHeader(dst []byte, h *Header) ([]byte, error) {
	h.Kind, h.APIVersion = Kind, APIVersion
	text, err := json.Marshal(h)
	if err != nil {
		return dst, fmt.Errorf("rows: %w", err)
	}
	return append(append(dst, text...), '\n'), nil
}
