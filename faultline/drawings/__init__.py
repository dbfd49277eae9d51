"""Pictures of an incident as SVG: what happened when (`timeline_svg`), where (`topology_svg`), and how it was decided
(`decision_svg`). Pure."""

from faultline.drawings.decision import decision_svg
from faultline.drawings.render import drawing_css, standalone
from faultline.drawings.timeline import timeline_svg
from faultline.drawings.topology import topology_svg

__all__ = ["decision_svg", "drawing_css", "standalone", "timeline_svg", "topology_svg"]
