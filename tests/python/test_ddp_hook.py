"""DistributedDataParallel with Kolo's hook trains what it trains with gloo, under kolo run, where
PyTorch listens at MASTER_PORT itself."""
# needs torch numpy; ranks 2

import pytorch_ddp_hook

pytorch_ddp_hook.main()
