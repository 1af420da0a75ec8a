package offline

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
)

// ErrSnapshot is what is wrong with a directory that holds a snapshot.
var ErrSnapshot = errors.New("invalid snapshot")

const (
	snapshotVersion = "federator.dev/snapshot/v1"
	snapshotFile    = "fleet.yaml"
	maxFleetFile    = 64 << 20
	maxScopeFile    = 8 << 30 // bytes of a scope's objects, as JSON
)

// savedFleet is fleet.yaml.
type savedFleet struct {
	Version  string             `json:"version"`
	Revision aggregate.Revision `json:"revision"`
	Taken    time.Time          `json:"taken"`
	Members  []savedMember      `json:"members"`
}

type savedMember struct {
	Name    string            `json:"name"`
	UID     string            `json:"uid"`
	Labels  map[string]string `json:"labels,omitempty"`
	Version string            `json:"version,omitempty"`
	APIs    []string          `json:"apis,omitempty"`
	Cluster *savedCluster     `json:"cluster,omitempty"`
	Scopes  []savedScope      `json:"scopes,omitempty"`
}

// savedCluster is what is known of a member's Cluster; snapshots of older versions have none.
type savedCluster struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Paused      bool              `json:"paused,omitempty"`
	Conditions  []savedCondition  `json:"conditions,omitempty"`
	Class       string            `json:"class,omitempty"`
	Version     string            `json:"version,omitempty"`
}

type savedCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Since   string `json:"lastTransitionTime,omitempty"`
}

func saveCluster(c *aggregate.Cluster) *savedCluster {
	if c.Equal(&aggregate.Cluster{}) {
		return nil
	}
	saved := &savedCluster{Annotations: savedLabels(c.Annotations), Paused: c.Paused, Class: c.Class, Version: c.Version}
	for _, x := range c.Conditions {
		saved.Conditions = append(saved.Conditions, savedCondition(x))
	}
	return saved
}

func (s *savedCluster) load() aggregate.Cluster {
	if s == nil {
		return aggregate.Cluster{}
	}
	c := aggregate.Cluster{Annotations: sortedLabels(s.Annotations), Paused: s.Paused, Class: s.Class, Version: s.Version}
	for _, x := range s.Conditions {
		c.Conditions = append(c.Conditions, aggregate.Condition(x))
	}
	return c
}

func savedLabels(list []aggregate.Label) map[string]string {
	if len(list) == 0 {
		return nil
	}
	saved := make(map[string]string, len(list))
	for _, l := range list {
		saved[l.Key] = l.Value
	}
	return saved
}

type savedScope struct {
	Kind    aggregate.Kind  `json:"kind"`
	Version string          `json:"version"`
	State   aggregate.State `json:"state"`
	Reason  string          `json:"reason,omitempty"`
	Objects int             `json:"objects,omitempty"`
	File    string          `json:"file,omitempty"` // relative; none where there are no objects
}

// Saved is a fleet that was saved.
type Saved struct {
	Index    *aggregate.Index
	Revision aggregate.Revision // of the snapshot that was saved; Index has its own
	Taken    time.Time
}

// SaveSnapshot writes a snapshot to a directory that is empty or not there: one
// compressed file of JSON lines for each member and kind, and fleet.yaml, last,
// with members, scopes and revision. Objects are written as the index holds them,
// so redacted unless that was turned off.
func SaveSnapshot(dir string, s *aggregate.Snapshot, taken time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil {
		return err
	} else if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	fleet := savedFleet{Version: snapshotVersion, Revision: s.Revision(), Taken: taken.UTC()}
	for m := range s.Members() {
		saved := savedMember{Name: m.Name, UID: m.UID, Labels: savedLabels(m.Labels), Version: m.Version, APIs: m.APIs, Cluster: saveCluster(&m.Cluster)}
		for info := range s.Scopes(m.Name) {
			scope, err := saveScope(dir, s, info)
			if err != nil {
				return fmt.Errorf("member %q: %s: %w", m.Name, info.Kind, err)
			}
			saved.Scopes = append(saved.Scopes, scope)
		}
		fleet.Members = append(fleet.Members, saved)
	}
	data, err := yaml.Marshal(fleet)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, snapshotFile), data, 0o600)
}

func saveScope(dir string, s *aggregate.Snapshot, info aggregate.ScopeInfo) (savedScope, error) {
	saved := savedScope{Kind: info.Kind, Version: info.Version, State: info.Status.State, Reason: info.Status.Reason}
	if info.Objects == 0 {
		return saved, nil
	}
	saved.File = strings.ReplaceAll(info.Member, "/", "_") + "/" + string(info.Kind) + ".jsonl.gz"
	path := filepath.Join(dir, filepath.FromSlash(saved.File))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return saved, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return saved, err
	}
	saved.Objects, err = writeBodies(f, s, info)
	return saved, errors.Join(err, f.Close())
}

func writeBodies(w io.Writer, s *aggregate.Snapshot, info aggregate.ScopeInfo) (n int, err error) {
	objects, err := s.List(aggregate.Query{Kind: info.Kind, Members: []string{info.Member}})
	if err != nil {
		return 0, err
	}
	z := gzip.NewWriter(w)
	var body []byte
	for o := range objects {
		if body, err = o.AppendBody(body[:0]); err != nil {
			return n, err
		}
		if _, err := z.Write(append(body, '\n')); err != nil {
			return n, err
		}
		n++
	}
	return n, z.Close()
}

// LoadSnapshot reads what SaveSnapshot wrote. Scopes have the states that they had,
// and objects revisions of this index's own.
func LoadSnapshot(dir string) (*Saved, error) {
	f, err := os.Open(filepath.Join(dir, snapshotFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	defer f.Close()
	data, err := io.ReadAll(&limitedReader{r: f, left: maxFleetFile})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSnapshot, snapshotFile, err)
	}
	var fleet savedFleet
	if err := yaml.UnmarshalStrict(data, &fleet); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSnapshot, snapshotFile, err)
	}
	if fleet.Version != snapshotVersion {
		return nil, fmt.Errorf("%w: %s: version %q is not %s", ErrSnapshot, snapshotFile, fleet.Version, snapshotVersion)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, err
	}
	for _, m := range fleet.Members {
		if err := loadMember(index, dir, &m); err != nil {
			return nil, fmt.Errorf("%w: member %q: %w", ErrSnapshot, m.Name, err)
		}
	}
	return &Saved{Index: index, Revision: fleet.Revision, Taken: fleet.Taken}, nil
}

func loadMember(index *aggregate.Index, dir string, m *savedMember) error {
	if !validMember(m.Name) {
		return errors.New("the name is not <namespace>/<name>")
	}
	if err := index.PutMember(aggregate.Member{
		Name: m.Name, UID: m.UID, Labels: sortedLabels(m.Labels), Version: m.Version, APIs: m.APIs, Cluster: m.Cluster.load(),
	}); err != nil {
		return err
	}
	for _, s := range m.Scopes {
		if err := loadScope(index, dir, m.Name, s); err != nil {
			return fmt.Errorf("%s: %w", s.Kind, err)
		}
	}
	return nil
}

func loadScope(index *aggregate.Index, dir, member string, s savedScope) error {
	scope, err := index.OpenScope(member, s.Kind, s.Version)
	if err != nil {
		return err
	}
	defer scope.Close()
	var items []aggregate.Item
	if s.File != "" {
		if items, err = readBodies(scope, dir, s); err != nil {
			return fmt.Errorf("%s: %w", s.File, err)
		}
	}
	if len(items) != s.Objects {
		return fmt.Errorf("%d objects, not %d", len(items), s.Objects)
	}
	_, err = scope.Replace(items, aggregate.Status{State: s.State, Reason: s.Reason})
	return err
}

func readBodies(scope *aggregate.Scope, dir string, s savedScope) ([]aggregate.Item, error) {
	if !filepath.IsLocal(filepath.FromSlash(s.File)) {
		return nil, errors.New("the path leads out of the snapshot")
	}
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(s.File)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(s.Version)
	if err != nil {
		return nil, err
	}
	kind, _ := s.Kind.Split()
	decoder, err := decode.New(gv.WithKind(kind), decode.JSON, decode.Rules{})
	if err != nil {
		return nil, err
	}
	var items []aggregate.Item
	lines := bufio.NewScanner(&limitedReader{r: z, left: maxScopeFile})
	lines.Buffer(nil, maxObjectBytes)
	for lines.Scan() {
		var rec aggregate.Record
		if err := ignoreUnfit(decoder.Object(bytes.Clone(lines.Bytes()), &rec)); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(items)+1, err)
		}
		items = append(items, scope.Item(&rec))
	}
	return items, lines.Err()
}
