"""Pictures of an incident as SVG: what happened when (`timeline_svg`) and where (`topology_svg`). Pure."""

from faultline.drawings.render import drawing_css
from faultline.drawings.timeline import timeline_svg
from faultline.drawings.topology import topology_svg

__all__ = ["drawing_css", "timeline_svg", "topology_svg"]
