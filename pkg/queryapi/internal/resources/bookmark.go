package resources

import "federator.dev/federator/pkg/queryapi/internal/part"

// sendFinalBookmark lets the client resume from where the watch ended.
func (w *watchStream) sendFinalBookmark() error {
	if err := w.sendBookmark(nil); err != nil {
		return err
	}
	if w.ask != nil {
		w.out = part.Append(w.out, part.End, nil)
	}
	return w.flush()
}

// sendBookmark sends the position of the watch, if the client accepts bookmarks.
func (w *watchStream) sendBookmark(annotations map[string]string) error {
	revision := max(w.sent, w.last.Revision())
	if w.ask != nil {
		w.appendMark(revision, annotations != nil)
		return w.flushIfFull()
	}
	if !w.params.AllowWatchBookmarks && annotations == nil {
		return nil
	}
	var err error
	if w.out, err = w.appendBookmark(w.out, revision, annotations); err != nil {
		return err
	}
	return w.flushIfFull()
}
