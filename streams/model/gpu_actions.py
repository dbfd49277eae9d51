"""What NVIDIA's catalogs ask for after an error of a GPU or a switch: their buckets, in lower case."""

from __future__ import annotations

from enum import StrEnum


class GpuAction(StrEnum):
    """What is to be done at once, or when an error repeats. Which of them are decisive is in policy/families.yaml."""

    CHECK_APP = "check_app"
    CHECK_MECHANICALS = "check_mechanicals"
    CHECK_NVLINK_FAILURE_FLOW = "check_nvlink_failure_flow"
    CHECK_UVM = "check_uvm"
    CONTACT_SUPPORT = "contact_support"
    DRAIN_AND_RESET = "drain_and_reset"
    DRAIN_P2P = "drain_p2p"
    FOLLOW_TEXT = "follow_text"
    IGNORE = "ignore"
    INVESTIGATE_LINK_SI = "investigate_link_si"
    INVESTIGATE_SW = "investigate_sw"
    INVESTIGATE_SW_USER = "investigate_sw_user"
    NONE = "none"
    RECOVER_FEATURE_RESET_GPU = "recover_feature_reset_gpu"
    RECOVER_IMEX = "recover_imex"
    REPORT_ISSUE = "report_issue"
    RESET_GPU = "reset_gpu"
    RESTART_APP = "restart_app"
    RESTART_BM = "restart_bm"
    RESTART_FM = "restart_fm"
    RESTART_VM = "restart_vm"
    RUN_DCGMEUD = "run_dcgmeud"
    SYMPATHETIC = "sympathetic"
    UPDATE_SWFW = "update_swfw"
    WORKFLOW_NVLINK5_ERR = "workflow_nvlink5_err"
    WORKFLOW_NVLINK_ERR = "workflow_nvlink_err"
    WORKFLOW_XID_13 = "workflow_xid_13"
    WORKFLOW_XID_168 = "workflow_xid_168"
    WORKFLOW_XID_31 = "workflow_xid_31"
    WORKFLOW_XID_45 = "workflow_xid_45"
    WORKFLOW_XID_48 = "workflow_xid_48"
    XID_137_FLOW = "xid_137_flow"
    XID_154_EVAL = "xid_154_eval"
