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

// Bounds of Reports.
const (
	reportsEvery     = 30 * time.Second
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

// Kinds of reports, and of what they belong to.
var (
	reportKind        = schema.GroupVersionResource{Group: reportsGroup, Version: reportsVersion, Resource: "reports"}
	clusterReportKind = schema.GroupVersionResource{Group: reportsGroup, Version: reportsVersion, Resource: "clusterreports"}
	clusterKinds      = []schema.GroupVersionResource{
		clusterv1.GroupVersion.WithResource("clusters"),
		{Group: clusterv1.GroupVersion.Group, Version: "v1beta1", Resource: "clusters"},
	}
)

// ReportsOptions configure Reports. Config, Loop, Library and Lead are required.
type ReportsOptions struct {
	Config  *rest.Config // of the hub
	Loop    *enforce.Loop
	Library Library
	Lead    func() bool // whether this process writes
	// Off removes the Reports that there are, as far as that is granted.
	Off bool
	// Namespaces are those of the Clusters; none means all.
	Namespaces []string
	// Every is how often Reports are written at most. 0 means 30 seconds.
	Every time.Duration
	// PerReport and PerMember bound the results of one Report and of all Reports of one
	// member. 0 means 500 and 2000.
	PerReport, PerMember int
	Logger               *slog.Logger // nil: none
}

// Reports writes what policies find as OpenReports (openreports.io/v1alpha1) on the hub,
// by member: Reports in the namespace of its Cluster, ClusterReports for members that
// have none and for what is found on no single member. Whoever may read them there reads
// what policies find, whatever they may read of members.
//
// The CRDs are not federator's: it waits for them. Results beyond the bounds are left
// out; the summaries of all Reports of a member add up to what there is.
type Reports struct {
	opts   ReportsOptions
	client metadata.Interface

	// What follows belongs to Run.
	known  map[reportKey]knownReport // on the hub; nil: to be listed
	listed time.Time
	done   *policy.State // what the hub has; nil: perhaps not all
	fault  string        // what was logged last
}

// reportKey is the place of a report; namespace "" is of a ClusterReport.
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

// knownReport is what a report on the hub says, and the version that has it.
type knownReport struct{ hash, version string }

// NewReports returns Reports that are not written before Run.
func NewReports(opts ReportsOptions) (*Reports, error) {
	if opts.Config == nil || opts.Loop == nil || opts.Library == nil || opts.Lead == nil {
		return nil, errors.New("Reports: Config, Loop, Library and Lead are required")
	}
	if opts.Every < 0 || opts.PerReport < 0 || opts.PerMember < 0 {
		return nil, errors.New("Reports: Every, PerReport and PerMember must not be negative")
	}
	if opts.Every == 0 {
		opts.Every = reportsEvery
	}
	if opts.PerReport == 0 {
		opts.PerReport = reportResults
	}
	if opts.PerMember == 0 {
		opts.PerMember = reportsPerMember
	}
	if len(opts.Namespaces) == 0 {
		opts.Namespaces = []string{metav1.NamespaceAll}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	config := rest.CopyConfig(opts.Config)
	config.WarningHandler = rest.NoWarnings{} // that a version of Cluster is deprecated is known
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return &Reports{opts: opts, client: client}, nil
}

// Run keeps the reports until the context ends.
func (r *Reports) Run(ctx context.Context) error {
	tick := time.NewTicker(r.opts.Every)
	defer tick.Stop()
	for {
		switch {
		case !r.opts.Lead():
			r.known, r.done = nil, nil // who leads meanwhile changes them
		case r.opts.Off:
			if r.removeAll(ctx) {
				<-ctx.Done()
			}
		default:
			r.tell(ctx, r.round(ctx))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// tell logs what keeps reports from being written, once.
func (r *Reports) tell(ctx context.Context, err error) {
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
		r.done = nil
	}
	if text == r.fault {
		return
	}
	if r.fault = text; text == "" {
		r.opts.Logger.Info("reports are written")
	} else {
		r.opts.Logger.Warn("reports are not written, or not all", "err", text)
	}
}

// removeAll removes what there is, and reports whether nothing more is to be done.
func (r *Reports) removeAll(ctx context.Context) bool {
	err := r.list(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return true // there are none, or they are not ours to remove
	}
	if err == nil {
		err = r.write(ctx, nil)
	}
	if err != nil && ctx.Err() == nil {
		r.opts.Logger.Debug("reports are not removed yet", "err", err)
	}
	return err == nil
}

// round writes what differs from what the hub has.
func (r *Reports) round(ctx context.Context) error {
	if r.known == nil || time.Since(r.listed) >= reportsRelist {
		if err := r.list(ctx); err != nil {
			return err
		}
	}
	state := r.opts.Loop.State()
	if state == nil || !state.Synced || state == r.done {
		return nil // what the hub has is better than what is not known
	}
	clusters, err := r.clusters(ctx)
	if err != nil {
		return err
	}
	if err := r.write(ctx, r.compose(state, clusters)); err != nil {
		if apierrors.IsNotFound(err) {
			r.known = nil // a namespace is gone, or the CRDs
		}
		return err
	}
	r.done = state
	return nil
}

// list reads which reports there are. One that has changed since it was written is
// written again.
func (r *Reports) list(ctx context.Context) error {
	known := map[reportKey]knownReport{}
	take := func(m *metav1.PartialObjectMetadata) {
		key := reportKey{m.Namespace, m.Name}
		now := knownReport{m.Annotations[reportHash], m.ResourceVersion}
		if was, ok := r.known[key]; ok && was.version != now.version {
			now.hash = ""
		}
		known[key] = now
	}
	ours := metav1.ListOptions{LabelSelector: managedBy + "=federator"}
	err := r.each(ctx, clusterReportKind, "", ours, take)
	for _, namespace := range r.opts.Namespaces {
		if err == nil {
			err = r.each(ctx, reportKind, namespace, ours, take)
		}
	}
	if err != nil {
		r.known = nil
		return err
	}
	for key, was := range r.known {
		if now, ok := known[key]; !ok || now.hash != was.hash {
			r.done = nil
		}
	}
	r.known, r.listed = known, time.Now()
	return nil
}

// each yields the metadata of objects, page by page.
func (r *Reports) each(ctx context.Context, kind schema.GroupVersionResource, namespace string, opts metav1.ListOptions, yield func(*metav1.PartialObjectMetadata)) error {
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

// clusters returns the Clusters of the hub, by member, as owners of reports.
func (r *Reports) clusters(ctx context.Context) (map[string]metav1.OwnerReference, error) {
	var err error
	for _, kind := range clusterKinds {
		found := map[string]metav1.OwnerReference{}
		for _, namespace := range r.opts.Namespaces {
			if err = r.each(ctx, kind, namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
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
	return map[string]metav1.OwnerReference{}, nil // there is no Cluster API
}

// write makes the hub have these reports, and no other. What fails for one does not keep
// others from being written.
func (r *Reports) write(ctx context.Context, want map[reportKey]*report) error {
	var failed error
	for _, key := range slices.SortedFunc(maps.Keys(want), reportKey.compare) {
		body, hash, err := want[key].encode()
		if err != nil {
			return err
		}
		if r.known[key].hash == hash {
			continue
		}
		if !r.opts.Lead() || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.apply(ctx, key, body, hash); err != nil {
			failed = err
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.known), reportKey.compare) {
		if want[key] != nil {
			continue
		}
		if !r.opts.Lead() || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		request, cancel := context.WithTimeout(ctx, requestTimeout)
		err := r.client.Resource(key.kind()).Namespace(key.namespace).Delete(request, key.name, metav1.DeleteOptions{})
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

// encode returns a report with the hash of what it says.
func (p *report) encode() (body []byte, hash string, err error) {
	delete(p.Annotations, reportHash)
	if body, err = json.Marshal(p); err != nil {
		return nil, "", err
	}
	hash = digest(body)
	p.Annotations[reportHash] = hash
	body, err = json.Marshal(p)
	return body, hash, err
}
