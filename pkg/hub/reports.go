package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// Limits of Reports.
const (
	reportsInterval  = 30 * time.Second
	reportResults    = 500       // of one Report
	reportBytes      = 512 << 10 // of one Report's results
	reportsPerMember = 2000      // results
	reportsRelist    = 10 * time.Minute
	reportsPage      = 500
)

const (
	managedBy      = "app.kubernetes.io/managed-by"
	reportHash     = "federator.dev/hash"
	reportMember   = "federator.dev/member"
	reportsVersion = "v1alpha1"
	reportsGroup   = "openreports.io"
)

// Kinds of reports and of their owners.
var (
	reportKind        = schema.GroupVersionResource{Group: reportsGroup, Version: reportsVersion, Resource: "reports"}
	clusterReportKind = schema.GroupVersionResource{Group: reportsGroup, Version: reportsVersion, Resource: "clusterreports"}
	clusterKinds      = []schema.GroupVersionResource{
		clusterv1.GroupVersion.WithResource("clusters"),
		{Group: clusterv1.GroupVersion.Group, Version: "v1beta1", Resource: "clusters"},
	}
)

// ReportsOptions configure Reports. Config, Loop, Library and IsLeader are required.
type ReportsOptions struct {
	Config   *rest.Config // of the hub
	Loop     *enforce.Loop
	Library  Library
	IsLeader func() bool // whether this process writes Reports
	// Disabled deletes existing Reports, as far as permissions allow it.
	Disabled bool
	// Namespaces are the namespaces of the Clusters; empty means all.
	Namespaces []string
	// Describes returns what describes a member on the hub, nil where nothing does. Members that
	// something else than a Cluster describes have ClusterReports. nil: only Clusters do.
	Describes func(member string) *corev1.ObjectReference
	// NoClusters is set where no Cluster describes a member: Clusters, and Reports in their namespaces,
	// are not read.
	NoClusters bool
	// Fleet returns who judges the members, nil while that is not known: each process writes what it judges, and the leader
	// removes what is of nobody any more. It returns the same pointer as long as nothing has changed. nil: this
	// process judges all members.
	Fleet func() *ReportsFleet
	// Interval is the minimum time between updates of Reports. 0 means 30 seconds.
	Interval time.Duration
	// PerReport and PerMember limit the number of results in one Report and in all Reports
	// of one member. 0 means 500 and 2000.
	PerReport, PerMember int
	Logger               *slog.Logger // nil: none
}

// ReportsFleet is who judges the members, where several processes share a fleet. It is immutable.
type ReportsFleet struct {
	Self      string            // this process
	Processes []string          // all that judge anything
	Judges    map[string]string // process by member, "" for none: all members that are described
}

// Reports writes violations as OpenReports (openreports.io/v1alpha1) on the hub, by member:
// Reports in the namespace of its Cluster, ClusterReports for members without a Cluster
// and for violations that belong to no member. Anyone who can read them sees the
// violations, whatever they may read of the members.
//
// Where several processes share the fleet, each writes those of the members that it judges, and of the keys of views a
// ClusterReport of its own. A report of a member that moves is written by the one that judges it now: an update or a
// deletion counts only if the report is as its writer knows it.
//
// The CRDs are not part of federator; it waits until they are installed. Results over the
// limits are omitted; the summaries of all Reports of a member add up to all results.
type Reports struct {
	opts   ReportsOptions
	client metadata.Interface

	// The following fields are used by Run only.
	known     map[reportKey]knownReport // on the hub; nil: not listed yet
	listed    time.Time
	written   *policy.State // the state that the Reports are of; nil: some may not be
	lastError string        // logged last
	shared    *ownership    // that was written by last; nil where this process judges all
}

// reportKey is the namespace and name of a report; a ClusterReport has no namespace.
type reportKey struct{ namespace, name string }

func (k reportKey) kind() schema.GroupVersionResource {
	if k.namespace == "" {
		return clusterReportKind
	}
	return reportKind
}

func (k reportKey) compare(o reportKey) int {
	if c := strings.Compare(k.namespace, o.namespace); c != 0 {
		return c
	}
	return strings.Compare(k.name, o.name)
}

// unnumbered is the key without the number of the shard.
func (k reportKey) unnumbered() reportKey {
	return reportKey{k.namespace, k.name[:max(0, strings.LastIndexByte(k.name, '-'))]}
}

// knownReport is the content's hash and the resourceVersion of a report on the hub.
type knownReport struct{ hash, version string }

// NewReports returns Reports; nothing is written before Run.
func NewReports(opts ReportsOptions) (*Reports, error) {
	if opts.Config == nil || opts.Loop == nil || opts.Library == nil || opts.IsLeader == nil {
		return nil, errors.New("Reports: Config, Loop, Library and IsLeader are required")
	}
	if opts.Interval < 0 || opts.PerReport < 0 || opts.PerMember < 0 {
		return nil, errors.New("Reports: Interval, PerReport and PerMember must not be negative")
	}
	if opts.Interval == 0 {
		opts.Interval = reportsInterval
	}
	if opts.PerReport == 0 {
		opts.PerReport = reportResults
	}
	if opts.PerMember == 0 {
		opts.PerMember = reportsPerMember
	}
	switch {
	case opts.NoClusters:
		opts.Namespaces = nil
	case len(opts.Namespaces) == 0:
		opts.Namespaces = []string{metav1.NamespaceAll}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	config := rest.CopyConfig(opts.Config)
	config.WarningHandler = rest.NoWarnings{} // about deprecated versions of Cluster
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return &Reports{opts: opts, client: client}, nil
}

// Run keeps the reports up to date until the context ends.
func (r *Reports) Run(ctx context.Context) error {
	tick := time.NewTicker(r.opts.Interval)
	defer tick.Stop()
	for {
		switch {
		case !r.opts.IsLeader() && (r.opts.Fleet == nil || r.opts.Disabled):
			r.known, r.written = nil, nil // another leader changes them
		case r.opts.Disabled:
			if r.removeAll(ctx) {
				<-ctx.Done()
			}
		default:
			r.logOutcome(ctx, r.reconcile(ctx))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// logOutcome logs an error once, and when it has ended.
func (r *Reports) logOutcome(ctx context.Context, err error) {
	text := ""
	switch {
	case ctx.Err() != nil:
		return
	case apierrors.IsNotFound(err) && r.known == nil:
		text = "the hub does not serve openreports.io/v1alpha1: install the CRDs of OpenReports"
	case err != nil:
		text = err.Error()
	}
	if err != nil {
		r.written = nil
	}
	if text == r.lastError {
		return
	}
	if r.lastError = text; text == "" {
		r.opts.Logger.Info("reports are being written")
	} else {
		r.opts.Logger.Warn("writing reports failed", "error", text)
	}
}

// removeAll deletes all reports, and reports whether it is finished.
func (r *Reports) removeAll(ctx context.Context) bool {
	err := r.list(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return true // there are none, or no permission to delete them
	}
	if err == nil {
		err = r.write(ctx, nil, nil)
	}
	if err != nil && ctx.Err() == nil {
		r.opts.Logger.Debug("deleting reports failed, retrying", "error", err)
	}
	return err == nil
}

// reconcile writes the reports that have changed.
func (r *Reports) reconcile(ctx context.Context) error {
	owns, known := r.ownership()
	if !known {
		return nil
	}
	if r.known == nil || time.Since(r.listed) >= reportsRelist || owns.gains(r.shared) {
		if err := r.list(ctx); err != nil {
			return err
		}
	}
	state := r.opts.Loop.State()
	if state == nil || !state.Synced || state == r.written && owns.same(r.shared) {
		return nil // keep the reports until there is a complete state
	}
	r.shared = owns
	clusters, err := r.clusters(ctx)
	if err != nil {
		return err
	}
	desired, stay := r.build(state, clusters)
	if err := r.write(ctx, desired, stay); err != nil {
		if apierrors.IsNotFound(err) || r.shared != nil {
			r.known = nil // a namespace or the CRDs were deleted, or another process has written a report
		}
		return err
	}
	r.written = state
	return nil
}

// list reads the existing reports. One that another client has changed is written again.
func (r *Reports) list(ctx context.Context) error {
	known := map[reportKey]knownReport{}
	add := func(m *metav1.PartialObjectMetadata) {
		key := reportKey{m.Namespace, m.Name}
		now := knownReport{m.Annotations[reportHash], m.ResourceVersion}
		if was, ok := r.known[key]; ok && was.version != now.version {
			now.hash = ""
		}
		known[key] = now
	}
	ours := metav1.ListOptions{LabelSelector: managedBy + "=federator"}
	err := r.forEach(ctx, clusterReportKind, "", ours, add)
	for _, namespace := range r.opts.Namespaces {
		if err == nil {
			err = r.forEach(ctx, reportKind, namespace, ours, add)
		}
	}
	if err != nil {
		r.known = nil
		return err
	}
	for key, was := range r.known {
		if now, ok := known[key]; !ok || now.hash != was.hash {
			r.written = nil
		}
	}
	r.known, r.listed = known, time.Now()
	return nil
}

// forEach calls yield with the metadata of all objects of a kind, listed in pages.
func (r *Reports) forEach(ctx context.Context, kind schema.GroupVersionResource, namespace string, opts metav1.ListOptions, yield func(*metav1.PartialObjectMetadata)) error {
	opts.Limit = reportsPage
	for {
		page, cancel := context.WithTimeout(ctx, requestTimeout)
		list, err := r.client.Resource(kind).Namespace(namespace).List(page, opts)
		cancel()
		if err != nil {
			return err
		}
		for i := range list.Items {
			yield(&list.Items[i])
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return nil
		}
	}
}

// clusters returns the Clusters on the hub, by member, as owner references.
func (r *Reports) clusters(ctx context.Context) (map[string]metav1.OwnerReference, error) {
	if r.opts.NoClusters {
		return map[string]metav1.OwnerReference{}, nil
	}
	var err error
	for _, kind := range clusterKinds {
		found := map[string]metav1.OwnerReference{}
		for _, namespace := range r.opts.Namespaces {
			if err = r.forEach(ctx, kind, namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
				found[m.Namespace+"/"+m.Name] = metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: "Cluster", Name: m.Name, UID: m.UID}
			}); err != nil {
				break
			}
		}
		if err == nil {
			return found, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("clusters: %w", err)
		}
	}
	return map[string]metav1.OwnerReference{}, nil // Cluster API is not installed
}

// write creates, updates and deletes reports so that there are exactly these. A failure
// does not keep other reports from being written.
func (r *Reports) write(ctx context.Context, desired map[reportKey]*report, stay map[reportKey]bool) error {
	var failed error
	for _, key := range slices.SortedFunc(maps.Keys(desired), reportKey.compare) {
		body, hash, err := desired[key].encode(r.versionOf(key))
		if err != nil {
			return err
		}
		if r.known[key].hash == hash {
			continue
		}
		if !r.mayWrite(key) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.apply(ctx, key, body, hash); err != nil {
			failed = err
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.known), reportKey.compare) {
		if desired[key] != nil || stay[key.unnumbered()] || !r.mayWrite(key) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		only := metav1.DeleteOptions{}
		if version := r.versionOf(key); version != "" {
			only.Preconditions = &metav1.Preconditions{ResourceVersion: &version}
		}
		request, cancel := context.WithTimeout(ctx, requestTimeout)
		err := r.client.Resource(key.kind()).Namespace(key.namespace).Delete(request, key.name, only)
		cancel()
		if err != nil && !apierrors.IsNotFound(err) {
			failed = err
			continue
		}
		delete(r.known, key)
	}
	return failed
}

func (r *Reports) apply(ctx context.Context, key reportKey, body []byte, hash string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	force := true
	made, err := r.client.Resource(key.kind()).Namespace(key.namespace).Patch(ctx, key.name, types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: "federator", Force: &force,
	})
	if err != nil {
		return fmt.Errorf("report %s/%s: %w", key.namespace, key.name, err)
	}
	r.known[key] = knownReport{hash, made.ResourceVersion}
	return nil
}

// encode returns a report with the annotation of its content's hash, to be written over a version: "" is whatever is there.
func (p *report) encode(over string) (body []byte, hash string, err error) {
	p.ResourceVersion = ""
	delete(p.Annotations, reportHash)
	if body, err = json.Marshal(p); err != nil {
		return nil, "", err
	}
	hash = digest(body)
	p.Annotations[reportHash], p.ResourceVersion = hash, over
	body, err = json.Marshal(p)
	return body, hash, err
}
