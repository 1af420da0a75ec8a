package sim

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// A filter is a request's namespace, name and selectors.
type filter struct {
	codec  *kindCodec
	prefix string // of keys in the requested namespace
	name   string // requested by path, as old clients do
	labels labels.Selector
	fields fields.Selector
	body   bool // a field selector needs more than the key
	all    bool // nothing but the namespace filters
}

// selectable are the fields beyond metadata that kube-apiserver lets select.
var selectable = map[string][]string{
	"pods":       {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.podIP"},
	"secrets":    {"type"},
	"namespaces": {"status.phase"},
	"nodes":      {"spec.unschedulable"},
}

func newFilter(t *table, c *call, opts *metainternal.ListOptions) (*filter, error) {
	f := &filter{codec: &t.kindCodec, name: c.name, labels: labels.Everything(), fields: fields.Everything()}
	if c.namespace != "" {
		f.prefix = c.namespace + "/"
	}
	if opts.LabelSelector != nil {
		f.labels = opts.LabelSelector
	}
	if opts.FieldSelector != nil {
		f.fields = opts.FieldSelector
	}
	for _, req := range f.fields.Requirements() {
		switch {
		case req.Field == "metadata.name", req.Field == "metadata.namespace" && t.kind.Namespaced:
		case t.kind.Group == "" && slices.Contains(selectable[t.kind.Resource], req.Field):
			f.body = true
		default:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", req.Field))
		}
	}
	f.all = f.name == "" && f.labels.Empty() && f.fields.Empty()
	return f, nil
}

func (f *filter) keeps(it *item) (bool, error) {
	if it == nil || !strings.HasPrefix(it.key, f.prefix) {
		return false, nil
	}
	if f.all {
		return true, nil
	}
	namespace, name, ok := strings.Cut(it.key, "/")
	if !ok {
		namespace, name = "", namespace
	}
	if f.name != "" && f.name != name {
		return false, nil
	}
	set := fields.Set{"metadata.name": name, "metadata.namespace": namespace}
	if f.body {
		obj, err := f.codec.object(it)
		if err != nil {
			return false, err
		}
		addFields(set, obj)
	}
	if !f.fields.Matches(set) {
		return false, nil
	}
	if f.labels.Empty() {
		return true, nil
	}
	found, err := f.codec.labelsOf(it)
	return err == nil && f.labels.Matches(labels.Set(found)), err
}

func addFields(set fields.Set, obj Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
		set["spec.restartPolicy"] = string(o.Spec.RestartPolicy)
		set["spec.schedulerName"] = o.Spec.SchedulerName
		set["spec.serviceAccountName"] = o.Spec.ServiceAccountName
		set["status.phase"] = string(o.Status.Phase)
		set["status.podIP"] = o.Status.PodIP
	case *corev1.Secret:
		set["type"] = string(o.Type)
	case *corev1.Namespace:
		set["status.phase"] = string(o.Status.Phase)
	case *corev1.Node:
		set["spec.unschedulable"] = fmt.Sprint(o.Spec.Unschedulable)
	}
}
