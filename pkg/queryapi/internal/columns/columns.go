package columns

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Set is the columns of the rows of one kind.
type Set struct {
	resource *catalog.Resource
	columns  []rows.Column
	sources  []source // of those after rows.Fixed
	prints   bool     // a source is a cell of the Table
	pods     bool     // which a podPrinter makes
	redacts  bool     // a source is where values may be redacted
	paths    node     // of all sources, and those that every Set has
	slots    int
}

// The slots that every Set has.
const (
	createdSlot = iota
	uidSlot
	redactedSlot
	firstSlot
)

// source is where a column's values are.
type source struct {
	kind rows.Type
	// cell is the number of a Table's cell, -1 for other sources, and counted says that it begins with the number.
	cell    int
	counted bool

	label, memberLabel string // the key of one
	entry              func(aggregate.Object) string
	// slots are those of paths, of which the first with a value other than "" counts; absent is the
	// value without any, "" for none.
	slots      []int
	absent     string
	redactable bool // the values are those that redaction empties
	cut        bool // redaction takes it away
}

// Columns are those of the rows. The slice is shared and must not be changed.
func (s *Set) Columns() []rows.Column { return s.columns }

// New returns the columns of a resource with chosen ones, and, if printer is set, those of its Table. Errors
// name the column.
func New(resource *catalog.Resource, chosen []rows.Chosen, printer bool) (*Set, error) {
	s := &Set{resource: resource, columns: slices.Clone(rows.Fixed), slots: firstSlot}
	s.paths.add([]string{"metadata", "creationTimestamp"}, createdSlot, rows.Timestamp)
	s.paths.add([]string{"metadata", "uid"}, uidSlot, rows.String)
	s.paths.add([]string{"metadata", "annotations", aggregate.RedactedAnnotation}, redactedSlot, rows.String)
	if printer {
		for i, c := range resource.Columns() {
			s.addPrinted(i, c)
		}
		s.pods = printsPods(resource)
	}
	for _, c := range chosen {
		if err := s.addChosen(c); err != nil {
			return nil, fmt.Errorf("column %q: %w", c.Name, err)
		}
	}
	return s, nil
}

// add adds a column. Where there is one of its name, it gets a number.
func (s *Set) add(c rows.Column, from source) {
	for name, n := c.Name, 2; s.has(c.Name); n++ {
		c.Name = fmt.Sprintf("%s_%d", name, n)
	}
	s.columns, s.sources = append(s.columns, c), append(s.sources, from)
	s.prints = s.prints || from.cell >= 0
	s.redacts = s.redacts || from.redactable || from.cut
}

func (s *Set) has(name string) bool {
	return rows.SameName(name, rows.RedactedName) || slices.ContainsFunc(s.columns, func(c rows.Column) bool { return rows.SameName(c.Name, name) })
}

// slotsOf returns the slots of paths.
func (s *Set) slotsOf(paths [][]string, kind rows.Type) (slots []int) {
	for _, p := range paths {
		s.paths.add(p, s.slots, kind)
		slots = append(slots, s.slots)
		s.slots++
	}
	return slots
}

// exact is a column of a Table whose text depends on the time, as what it is of: a number before that, or the first of paths.
type exact struct {
	kind  rows.Type
	paths [][]string
}

var exactly = map[aggregate.Kind]map[string]exact{
	"Pod":                 {"Restarts": {kind: rows.Int}},
	"CronJob.batch":       {"Last Schedule": {rows.Timestamp, [][]string{{"status", "lastScheduleTime"}}}},
	"Event":               eventTimes,
	"Event.events.k8s.io": eventTimes,
}

var eventTimes = map[string]exact{
	"Last Seen":  {rows.Timestamp, [][]string{{"series", "lastObservedTime"}, {"lastTimestamp"}, {"deprecatedLastTimestamp"}, {"eventTime"}}},
	"First Seen": {rows.Timestamp, [][]string{{"firstTimestamp"}, {"deprecatedFirstTimestamp"}, {"eventTime"}}},
}

// addPrinted adds a column of the Table.
func (s *Set) addPrinted(i int, c metav1.TableColumnDefinition) {
	path := s.resource.ColumnPath(i)
	switch {
	case c.Format == "name" || i == 0 && c.Name == "Name":
		return // fixed columns have it
	case path == ".metadata.creationTimestamp", path == "" && (c.Name == "Age" || c.Name == "Created At"):
		return
	}
	column := rows.Column{Name: columnName(c.Name), Type: typeOf(c.Type), Description: c.Description}
	if column.Type == rows.String && s.resource.IsCount(i) {
		column.Type = rows.Int
	}
	from := source{kind: column.Type, cell: i}
	if e, ok := exactly[s.resource.Kind][c.Name]; ok {
		column.Type, from.kind, from.counted = e.kind, e.kind, true
		if e.paths != nil {
			from = source{kind: e.kind, cell: -1, slots: s.slotsOf(e.paths, e.kind)}
		}
	}
	if c.Type == "date" && path != "" {
		if steps := simpleSteps(path); steps != nil {
			from = source{kind: rows.Timestamp, cell: -1, slots: s.slotsOf([][]string{steps}, rows.Timestamp)}
		} else {
			column.Type, from.kind = rows.String, rows.String // as it is printed
		}
	}
	s.add(column, from)
}

// typeOf returns the type of cells of a Table.
func typeOf(of string) rows.Type {
	switch of {
	case "integer":
		return rows.Int
	case "number":
		return rows.Number
	case "boolean":
		return rows.Bool
	case "date":
		return rows.Timestamp
	}
	return rows.String
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// columnName makes of a Table's header the name of a column: Port(s) is ports, Up-to-date up_to_date.
func columnName(header string) string {
	name := strings.NewReplacer("(", "", ")", "").Replace(strings.ToLower(header))
	name = strings.Trim(notInNames.ReplaceAllString(name, "_"), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

var simplePath = regexp.MustCompile(`^(\.[A-Za-z0-9_-]+)+$`)

// simpleSteps returns the keys of a JSONPath that has nothing else, nil for any other.
func simpleSteps(path string) []string {
	if !simplePath.MatchString(path) {
		return nil
	}
	return strings.Split(path[1:], ".")
}

// addChosen adds a chosen column.
func (s *Set) addChosen(c rows.Chosen) error {
	from := source{kind: c.Type, cell: -1}
	scheme, key, _ := strings.Cut(c.Source, ":")
	switch {
	case strings.HasPrefix(c.Source, "."):
		if err := s.setPath(&from, c.Source); err != nil {
			return err
		}
	case scheme == "label" || scheme == "memberLabel":
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("%q is not a valid label key: %s", key, problems[0])
		}
		if from.label = key; scheme == "memberLabel" {
			from.label, from.memberLabel = "", key
		}
	default:
		return fmt.Errorf("%.64q is not .<path>, label:<key> or memberLabel:<key>", c.Source)
	}
	if s.has(c.Name) {
		return fmt.Errorf("the kind has a column of that name, choose another one")
	}
	s.add(rows.Column{Name: c.Name, Type: c.Type, Description: c.Source}, from)
	return nil
}

// setPath sets the source to a path, as field selectors have it, with a dot before it, and [*] where it goes through a list.
func (s *Set) setPath(from *source, path string) error {
	path = strings.ReplaceAll(strings.TrimSuffix(path[1:], "[*]"), "[*].", ".")
	field, err := selection.CompileField(path, s.resource.Kind)
	if err != nil {
		return fmt.Errorf("%.64q: %w", path, err)
	}
	entry, paths, absent := field.Source()
	from.entry, from.absent = entry, absent
	from.slots = s.slotsOf(paths, from.kind)
	if s.resource.Kind == "Secret" || s.resource.Kind == "ConfigMap" {
		for _, p := range paths {
			from.redactable = from.redactable || slices.Contains([]string{"data", "binaryData", "stringData"}, p[0])
			from.cut = from.cut || slices.Equal(p, []string{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"})
		}
	}
	return nil
}

// node is a tree of paths.
type node struct {
	key   string
	below []*node // by key
	whole []int   // slots of the value here as it is written
	each  []int   // slots of the scalars here
}

func (n *node) add(path []string, slot int, kind rows.Type) {
	for _, key := range path {
		i, ok := slices.BinarySearchFunc(n.below, key, func(b *node, key string) int { return cmp.Compare(b.key, key) })
		if !ok {
			n.below = slices.Insert(n.below, i, &node{key: key})
		}
		n = n.below[i]
	}
	if kind == rows.JSON {
		n.whole = append(n.whole, slot)
	} else {
		n.each = append(n.each, slot)
	}
}
