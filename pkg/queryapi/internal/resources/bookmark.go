package resources

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// sendFinalBookmark lets the client resume from where the watch ended.
func (w *watchStream) sendFinalBookmark() error {
	if err := w.sendBookmark(nil); err != nil {
		return err
	}
	return w.flush()
}

// sendBookmark sends the position of the watch, if the client accepts bookmarks.
func (w *watchStream) sendBookmark(annotations map[string]string) error {
	if !w.params.AllowWatchBookmarks && annotations == nil {
		return nil
	}
	gvk := w.resource.GroupVersionKind()
	kind, version := gvk.Kind, gvk.GroupVersion().String()
	switch w.encoder.shape {
	case metadataOnly:
		kind, version = "PartialObjectMetadata", metav1.SchemeGroupVersion.String()
	case table:
		kind, version = "Table", metav1.SchemeGroupVersion.String()
	}
	revision := max(w.sent, w.last.Revision())
	object := map[string]any{
		"kind": kind, "apiVersion": version,
		"metadata": map[string]any{"resourceVersion": revisionString(revision), "annotations": annotations},
	}
	if w.encoder.shape == table {
		object["rows"] = []any{}
	}
	if w.encoder.protobuf {
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if text, err = w.encoder.toProtobuf(nil, text); err != nil {
			return err
		}
		if w.out, err = appendProtobufEvent(w.out, watch.Bookmark, w.encoder.typeMeta(), text); err != nil {
			return err
		}
		return w.flushIfFull()
	}
	text, err := json.Marshal(map[string]any{"type": watch.Bookmark, "object": object})
	if err != nil {
		return err
	}
	w.out = append(append(w.out, text...), '\n')
	return w.flushIfFull()
}
